"""Kinds of models whose answers are known: built from circuits, trained, pruned.

Knows: how models are made that are asked about, and which questions give nothing away.
Does not know: methods and scores (`tl_dyck_hooks.methods`, `tl_dyck.judge.scores`).
"""
