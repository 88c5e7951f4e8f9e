"""Named tasks: a language, its strings, their law, and which tokens count for the accuracy.

Knows: which language, how strings are drawn, and which tokens are asked.
Does not know: models and training (`tl_dyck.models`, `tl_dyck.training`).
"""

from __future__ import annotations

from tl_dyck.tasks.accuracy import counted_accuracy, nats_over_law
from tl_dyck.tasks.addition import addition_task
from tl_dyck.tasks.automaton import AutomatonTask
from tl_dyck.tasks.dyck import DyckTask
from tl_dyck.tasks.names import list_tasks, load_task, tasks
from tl_dyck.tasks.on_strings import StringAccuracy, accuracy_on
from tl_dyck.tasks.protocol import Task

__all__ = [
    "AutomatonTask",
    "DyckTask",
    "StringAccuracy",
    "Task",
    "accuracy_on",
    "addition_task",
    "counted_accuracy",
    "list_tasks",
    "load_task",
    "nats_over_law",
    "tasks",
]
