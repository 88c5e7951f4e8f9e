"""Tasks of other languages: counters, which have no stack, each in some thirty lines.

Knows: automata of other languages, and what is asked of their strings.
Does not know: models and training (`tl_dyck.models`, `tl_dyck.training`).
"""

from tl_dyck_hooks.tasks.anbncn import anbncn
from tl_dyck_hooks.tasks.dyck_1 import dyck_1
from tl_dyck_hooks.tasks.shuffle_dyck import shuffle_dyck

__all__ = ["anbncn", "dyck_1", "shuffle_dyck"]
