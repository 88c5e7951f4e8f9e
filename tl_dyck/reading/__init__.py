"""Reading a model: what goes in, what stands at its hook points, what it predicts, changing it.

Knows: tokens, activations and attention patterns of any decoder.
Does not know: how models are made, trained or judged (`tl_dyck.models`, `tl_dyck.training`,
`tl_dyck.judge`).
"""
