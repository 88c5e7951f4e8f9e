"""Papers whose claims are measured: what each says, how it is read, and the figures of its page.

Knows: what papers claim, and how it is read off trained models.
Does not know: how a claim is judged, or a paper found, for that is the library's; sentences
(`tl_dyck_text`).
"""
