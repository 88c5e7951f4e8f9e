"""Robust one-layer classifiers of real sentences: data, training, certificates, page, command.

Knows: words, sentences and their edits.
Does not know: how a certificate is proved, which it asks for; plugs and papers (`tl_dyck_hooks`,
`tl_dyck_papers`).

Import from its modules: they bring torch, which the list of commands does not need.
"""
