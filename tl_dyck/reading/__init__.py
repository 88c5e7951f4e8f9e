"""Reading a model: what goes in, what stands at its hook points, what it predicts, changing it.

Knows tokens, activations and attention patterns of any decoder; knows nothing of how models are
made, trained or judged.
"""
