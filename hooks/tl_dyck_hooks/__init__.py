"""The built-in plugs of tl_dyck, registered by entry point exactly as a third party's would be.

Knows: tasks, certifiers and methods beyond those that the library itself needs.
Does not know: papers and sentences (`tl_dyck_papers`, `tl_dyck_text`).
"""
