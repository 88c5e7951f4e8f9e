"""The same measurements on models whose mechanism is known: controls for every claim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tl_dyck.language import DyckLanguage
from tl_dyck.models import DyckTransformer, construct
from tl_dyck.models.construct.counters import COUNTERS, counter
from tl_dyck.reading.interventions import align, change_activation, interchange
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck_papers.stack_use.alignment import alignment
from tl_dyck_papers.stack_use.directions import depth_effects, site_name, streams
from tl_dyck_papers.stack_use.masks import far_answers, mask_effects
from tl_dyck_papers.stack_use.measure import StackUseMeasurement, prefixed

_N_CTX = 64
_STARTS = 5


_uniform = partial(construct.uniform_attention, n_ctx=_N_CTX)

#: Constructions by name: what is masked in them is masked in all heads, but for the decoy's.
KNOWN: dict[str, Callable[[DyckLanguage], DyckTransformer]] = {
    "stack attention": partial(construct.stack, n_ctx=_N_CTX),
    "uniform attention": _uniform,
    "uniform attention, two layers": partial(_uniform, first_layer="attention"),
    "decoy head": lambda language: construct.decoy_head(_uniform(language), "stack"),
}


def known_models(measurement: StackUseMeasurement) -> pd.DataFrame:
    """Measure the constructions: a row per model, with the metrics of `StackUseMeasurement`.

    Stack and uniform attention read two types of brackets; interchange accuracies are means over
    five starts. The counters read one type and have the depth at the end alone: what is measured
    there stands under "middle", too.
    """
    task, one_type = load_task("dyck-2-4"), load_task("dyck-1-4")
    seed = measurement.data_seed
    rows: list[dict[str, Any]] = []
    for name, make in KNOWN.items():
        model = make(task.language)
        generator = torch.Generator().manual_seed(seed)
        far = far_answers(task, measurement.n_far, generator)
        heads = (model.cfg.n_heads - 1,) if name == "decoy head" else None
        row = {"model": name, **prefixed("mask", mask_effects(model, far, heads))}
        if name != "decoy head":
            effects = depth_effects(model, task, far, measurement.n_depth, generator)
            means = _means(alignment, model, task, measurement.n_pairs, generator)
            row |= {**prefixed("depth", effects), **means}
        rows.append(row)
    for reads in COUNTERS:
        generator = torch.Generator().manual_seed(seed)
        model = counter(one_type.max_depth, reads, n_ctx=_N_CTX)
        effects = depth_effects(model, one_type, None, measurement.n_depth, generator)
        ends = {
            name.replace("end", "middle"): each for name, each in effects.items() if "end" in name
        }
        means = _means(counter_alignment, model, one_type, measurement.n_pairs, generator)
        depths = prefixed("depth", {**effects, **ends})
        rows.append({"model": f"counter, {reads}", **depths, **means})
    return pd.DataFrame(rows)


def _means(search: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Means of what a search finds from several starts."""
    found = [search(*arguments) for _ in range(_STARTS)]
    return prefixed("das", {key: float(np.mean([each[key] for each in found])) for key in found[0]})


def counter_alignment(
    model: DyckTransformer, task: DyckTask, n: int, generator: torch.Generator
) -> dict[str, float]:
    """Search for the one direction at the end that decides between opening and closing.

    Bases and sources are positions of strings with no bracket open, or with some; half of the
    pairs differ in that. With the direction interchanged the model ought to do as at the source.

    Returns:
        ``none``, ``random`` and ``search``: interchange accuracies, as of `alignment`; ``depth``
        and ``sign``: the absolute cosines of the found direction with the coordinate that holds the
        depth, and with that which holds whether it is positive.
    """
    tokens = task.sample(8 * n, generator=generator)
    stream = streams(model, tokens, "end")[:, :-1].flatten(0, 1)
    depth = task.language.depth(tokens)[:, :-1].flatten()
    judged = (tokens[:, 1:] != task.language.bos_token).flatten()
    pools = [stream[judged & ((depth > 0) == some)] for some in (False, True)]

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        """Bases, sources, and whether the sources close."""
        kinds = torch.arange(2 * n) % 4
        drawn = []
        for kind in (kinds // 2, kinds % 2):
            sizes = torch.tensor([len(pool) for pool in pools])[kind]
            index = (torch.rand(len(kind), generator=generator) * sizes).long()
            both = [pool[index.clamp_max(len(pool) - 1)] for pool in pools]
            drawn.append(torch.where(kind[:, None] == 1, both[1], both[0]))
        return drawn[0], drawn[1], kinds % 2

    def answers(base: Tensor, source: Tensor, basis: Tensor) -> Tensor:
        change = interchange(basis, source, torch.zeros(len(base), dtype=torch.int64))
        changed = change(base[:, None])
        hooks: list[Any] = change_activation(site_name(model, "end"), lambda _: changed)
        blank = torch.full((len(base), 1), task.language.bos_token)
        logits: Tensor = model.run_with_hooks(blank, fwd_hooks=hooks, return_type="logits")
        return logits[:, 0, :2]

    (base, source, closes), (new, its_source, wanted) = draw(), draw()

    def held_out(basis: Tensor) -> float:
        with torch.no_grad():
            chosen = answers(new, its_source, basis).argmax(-1)
        return float((chosen == wanted).double().mean())

    start = torch.randn(stream.shape[1], 1, generator=generator).to(stream)
    basis = align(partial(answers, base, source), closes, start)
    return {
        "none": held_out(torch.zeros_like(start)),
        "random": held_out(torch.linalg.qr(start).Q),
        "search": held_out(basis),
        "depth": float(basis[-2].abs()),
        "sign": float(basis[-1].abs()),
    }
