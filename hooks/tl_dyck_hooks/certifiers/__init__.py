"""The built-in certifiers (exhaustive, interval, exact, onnx-vnnlib), found by entry point.

Knows: how a question is answered, or put to somebody else's verifier.
Does not know: whole models, and languages (`tl_dyck.models`, `tl_dyck.language`).
"""
