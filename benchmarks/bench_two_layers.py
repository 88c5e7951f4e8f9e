"""Two layers without positions: processor time of one length decided, against the length.

Every prefix of exactly that length, none of them run. `linear`: attention only, a linear readout,
random weights: shortest paths alone. `construction`: uniform attention of two layers, norms and
MLPs: a bound for each profile. `trained`: the family `gpt`, trained for 3,000 steps: bounds and
splits. There are k bracket types, and D = 4; ``--three`` is the longest with k = 3, ``--trained``
that of the trained model.

Run with ``python benchmarks/bench_two_layers.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from harness import clock, heading, options, row

from tl_dyck import build_model, certify_language, construct, get_config, load_task, train_seeds
from tl_dyck.training import TrainConfig


def linear(k: int) -> Any:
    """Random weights; closing brackets are favoured, or the first look would refute it."""
    shape = {"n_layers": 2, "d_model": 16, "dtype": torch.float64, "device": "cpu"}
    task = load_task(f"dyck-{k}-4")
    config = get_config("attn-only", task, layer_norm=False, n_ctx=128, **shape)
    model = build_model(config, 0)
    with torch.no_grad():
        model.unembed.b_U[1 : 2 * k : 2] += 3.0
    return model


def trained() -> Any:
    """A model of the family `gpt` that is right on every prefix up to 11."""
    how: Any = {"options": TrainConfig(steps=3000, target=None), "n_jobs": 1, "progress": False}
    return train_seeds("gpt", "dyck-2-4", seeds=1, **how)[0].model


def main() -> None:
    """Print a row for each model and length."""
    said = options(__doc__, lengths=[12, 16, 20, 28, 40], three=12, trained=16)
    heading("model", "length", "prefixes", "seconds", "verdict")
    models: list[tuple[str, Any, str, int]] = []
    for k, longest in ((2, 999), (3, said.three)):
        built = construct.uniform_attention(
            load_task(f"dyck-{k}-4").language, first_layer="attention"
        )
        models.append((f"linear, k = {k}", linear(k), f"dyck-{k}-4", longest))
        models.append((f"construction, k = {k}", built, f"dyck-{k}-4", longest))
    if said.trained:
        models.append(("trained, k = 2", trained(), "dyck-2-4", said.trained))
    for name, model, task, longest in models:
        for length in said.lengths:
            if length <= longest:
                started = clock()
                found = certify_language(model, task, [length], most_run=0)
                seconds = f"{clock() - started:.1f}"
                row(name, length, f"{found.prefixes:.1e}", seconds, found.status)


if __name__ == "__main__":
    main()
