"""Every experiment of Wen et al. 2023 at a chosen scale: claims, measurements, readings.

Knows: the models of each claim at a scale, what is measured on them, and readings.
Does not know: the other paper (`tl_dyck_papers.stack_use`).
"""

from tl_dyck_papers.wen_2023.run import CLAIMS, WEN_2023
from tl_dyck_papers.wen_2023.scales import SCALES, Scale

__all__ = ["CLAIMS", "SCALES", "WEN_2023", "Scale"]
