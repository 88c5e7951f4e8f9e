"""What 2026 claims about the use of a stack by two-layer models, held to measurement.

Knows: masks, ablated directions and interchanges, each with controls.
Does not know: the other paper (`tl_dyck_papers.wen_2023`).
"""

from tl_dyck_papers.stack_use.measure import SCALES, StackUseScale
from tl_dyck_papers.stack_use.run import CLAIMS, STACK_USE_2026

__all__ = ["CLAIMS", "SCALES", "STACK_USE_2026", "StackUseScale"]
