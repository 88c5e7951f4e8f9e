"""The command line: ``tl-dyck study``, ``report``, ``train``, ``probe``, ``certify``, and more.

Knows: options, what is printed, exit statuses.
Does not know: a formula: what it shows, another room computes; papers and sentences
(`tl_dyck_papers`, `tl_dyck_text`), which are found.

A module here imports nothing heavy before one of its commands is called, so ``tl-dyck --help``
answers at once (`certificates` is the exception: ``tl-dyck certify`` imports it).
"""

from tl_dyck.cli.entry import app, main

__all__ = ["app", "main"]
