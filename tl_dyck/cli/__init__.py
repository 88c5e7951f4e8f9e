"""The command line: ``tl-dyck study``, ``report``, ``train``, ``probe``, ``certify``, and more.

A module here imports nothing heavy before one of its commands is called, so ``tl-dyck --help``
answers at once (`certificates` is the exception: ``tl-dyck certify`` imports it).
"""

from tl_dyck.cli.entry import app, main

__all__ = ["app", "main"]
