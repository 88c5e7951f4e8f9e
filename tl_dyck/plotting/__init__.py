"""Plots: what a plot is, and recipes that make one from a table.

Knows tables, marks and axes; knows no model, no run and no page.
"""
