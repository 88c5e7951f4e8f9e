"""What any program needs, whatever it is about.

Knows: files, records, processes, the screen, checks, errors, names for plugs.
Does not know: a language, a model, or what a tensor means: it imports nothing above
(`tl_dyck.language`, `tl_dyck.reading`, `tl_dyck.models`).
"""
