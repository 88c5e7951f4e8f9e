"""Plots: what a plot is, and recipes that make one from a table.

Knows: tables, marks and axes.
Does not know: models, runs and pages (`tl_dyck.models`, `tl_dyck.runs`, `tl_dyck.report`).
"""
