"""The report of a study: one HTML file, offline, that says what was found and shows it."""

from tl_dyck.report.page import write_report

__all__ = ["write_report"]
