"""Judged cases for agents: a folder each, questions whose answers are computed, a task of Inspect.

Knows: what an agent is shown, and what its answers are worth. `folder`, `scoring` and `scripted`
need nothing but tl_dyck; `task` needs inspect-ai.
Does not know: how cases are made, and which answers are right: that is `tl_dyck.judge`.
"""
