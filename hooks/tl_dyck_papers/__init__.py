"""Papers whose claims are measured: what each says, how it is read, and the figures of its page.

Knows the papers; how a claim is judged, and how models are trained and measured, knows `tl_dyck`,
which finds these by the entry points of the group ``tl_dyck.papers``.
"""
