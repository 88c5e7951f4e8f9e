"""The field's methods as `tl_dyck.judge` asks them: each with its published reading.

Knows: how each method scores, and where it says yes.
Does not know: what is true of a case, by which it is scored (`tl_dyck.judge.truths`).

A score is positive where the method says yes. Where the authors name no threshold, the one used
here is said; AUROC does not depend on it.
"""
