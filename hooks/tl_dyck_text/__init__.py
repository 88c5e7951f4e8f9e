"""Robust one-layer classifiers of real sentences: data, training, certificates, page, command.

Knows words, sentences and their edits; what a space of edits is, and what a certificate proves,
knows `tl_dyck`, which finds this package by its entry points. Import from its modules: they bring
torch, which the list of commands does not need.
"""
