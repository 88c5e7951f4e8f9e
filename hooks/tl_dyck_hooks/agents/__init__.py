"""Judged cases for agents: a folder each, questions whose answers are computed, a task of Inspect.

Knows: what an agent is shown, and what its answers are worth. `folder`, `scoring` and `scripted`
need nothing but tl_dyck; `task` needs inspect-ai.
Does not know: papers and sentences (`tl_dyck_papers`, `tl_dyck_text`).
"""
