"""All that a method is handed, but what models do, as numbers in views: what `attack` learns from.

Knows: what is seen of a case without a look at what its model computes.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

from tl_dyck.judge import ABOUT_HEADS, KINDS, Case, Question
from tl_dyck.judge.cheats import norms, norms_along
from tl_dyck.judge.facts import rivals
from tl_dyck.tasks import DyckTask

Numbers = dict[str, float]
_FIRST = 40  # parameters whose place in memory is looked at


def seen(case: Case, questions: Sequence[Question], earlier: Mapping[str, int]) -> pd.DataFrame:
    """A row for each question, of one kind, in their order; columns are "view: number"."""
    views: dict[str, Numbers] = {
        "sizes": _sizes(case),
        "body": _body(case),
        "strings": _strings(case),
        "readout": _readout(case),
        "weights": _whole(case),
    }
    shared = {f"{view}: {name}": x for view, found in views.items() for name, x in found.items()}
    shared |= {f"place: {kind} asked": earlier.get(kind, 0) for kind in KINDS}
    places = _places(case, questions)
    weights = _weights(case, questions)
    rows = [
        {
            **shared,
            **{f"place: {name}": x for name, x in place.items()},
            **{f"weights: own {name}": x for name, x in weight.items()},
        }
        for place, weight in zip(places, weights, strict=True)
    ]
    return pd.DataFrame(rows, dtype=float)


def _places(case: Case, questions: Sequence[Question]) -> list[Numbers]:
    """Places in the list, and what a target shares with how many others."""
    parts = [_parts(case, question) for question in questions]
    n, found = len(questions), []
    for place, mine in enumerate(parts):
        row: Numbers = {"first": place, "last": n - place, "share": (place + 0.5) / n, "n": n}
        for name, value in mine.items():
            alike = [at for at, other in enumerate(parts) if other[name] == value]
            below = [at for at, other in enumerate(parts) if other[name] < value]
            row |= {
                name: value,
                f"{name} alike": len(alike),
                f"{name} rank": alike.index(place),
                f"{name} rank of": alike.index(place) / len(alike),
                f"{name} below": len(below),
            }
        found.append(row)
    return found


def _parts(case: Case, question: Question) -> Numbers:
    """A target in numbers."""
    if question.kind == "token":
        prefix, place = question.target
        language = case.task.language
        beside = rivals(language, torch.tensor([prefix]))[0]
        return {
            "prefix": zlib.crc32(repr(prefix).encode()) % 2**20,
            "length": len(prefix),
            "at": place,
            "from the end": len(prefix) - place,
            "token": prefix[place],
            "before": prefix[place - 1],
            "last": prefix[-1],
            "depth": int(language.depth(torch.tensor([prefix]))[0, place]),
            "rivals": int(beside.sum()),
            "rivals before": int(beside[:place].sum()),
        }
    flat: Numbers = {}

    def add(name: str, part: Any) -> None:
        if isinstance(part, tuple):
            flat[f"{name} whole"] = zlib.crc32(repr(part).encode()) % 2**20
            for at, each in enumerate(part):
                add(f"{name}.{at}", each)
        else:
            flat[name] = -1 if part is None else part

    for at, part in enumerate((*question.target, *[-2] * 3)[:3]):
        add(f"target {at}", part)
        for inner in range(2):  # the same columns, whatever is nested
            flat.setdefault(f"target {at}.{inner}", -2)
        flat.setdefault(f"target {at}", -3)
        flat.setdefault(f"target {at} whole", -2)
    return flat


def _sizes(case: Case) -> Numbers:
    """Sizes, attributes of the configuration, digits of the name, and which fields are filled."""
    settings = {**vars(case.model.cfg), **{f"task {k}": v for k, v in vars(case.task).items()}}
    found = {name: _number(value) for name, value in settings.items()}
    found |= {f"digit {at}": int(digit, 16) for at, digit in enumerate(case.name[:12])}
    fields = {"other": case.other, "directions": case.directions}
    found |= {f"has {name}": value is not None for name, value in fields.items()}
    found |= {"length": case.length, "parameters": sum(p.numel() for p in case.model.parameters())}
    return found


def _number(value: Any) -> float:
    if isinstance(value, (bool, int, float)):
        return float(np.clip(value, -1e9, 1e9))
    return zlib.crc32(repr(value)[:200].encode()) % 1000


def _body(case: Case) -> Numbers:
    """How arrays lie in memory, what modules carry, and how long a pass takes."""
    found: Numbers = {}
    for at, (name, weight) in enumerate(case.model.named_parameters()):
        if at < _FIRST:
            found |= {
                f"{name} at": at,
                f"{name} dtype": _number(str(weight.dtype)),
                f"{name} lies": weight.is_contiguous(),
                f"{name} stride": weight.stride()[-1] if weight.ndim else 0,
                f"{name} offset": weight.storage_offset(),
                f"{name} room": weight.untyped_storage().nbytes() - weight.nbytes,
                f"{name} grad": weight.requires_grad + 2 * (weight.grad is not None),
            }
    modules = list(case.model.modules())
    found |= {
        "modules": len(modules),
        "training": sum(module.training for module in modules),
        "hooks": sum(len(module._forward_hooks) for module in modules),
        "attributes": sum(len(vars(module)) for module in modules),
        "attribute names": _number(sorted(vars(case.model))),
        "tokens lie": case.tokens.is_contiguous(),
        "tokens room": case.tokens.untyped_storage().nbytes() - case.tokens.nbytes,
    }
    times = []
    for _ in range(3):
        started = time.perf_counter()
        with torch.no_grad():
            case.model(case.tokens[:8])
        times.append(time.perf_counter() - started)
    return found | {"a pass takes": min(times)}


def _strings(case: Case) -> Numbers:
    """How often each token is, how deep it gets, or what is right, and the first string."""
    tokens, language = case.tokens, case.task.language
    counts = torch.bincount(tokens.flatten(), minlength=12)[:12] / tokens.numel()
    depth = (language.depth(tokens) if isinstance(case.task, DyckTask) else case.right).double()
    found = {f"token {token}": float(share) for token, share in enumerate(counts)}
    found |= {f"first {at}": float(x) for at, x in enumerate(tokens[0, :12])}
    found |= {"depth": float(depth.mean()), "spread": float(depth.std()), "rows": len(tokens)}
    return found | {"alike": len(tokens) - len(torch.unique(tokens, dim=0))}


@torch.no_grad()
def _readout(case: Case) -> Numbers:
    """The unembedding alone."""
    readout, bias = case.model.unembed.W_U, case.model.unembed.b_U
    found = {f"size {at}": float(x) for at, x in enumerate(torch.linalg.svdvals(readout)[:8])}
    found |= {f"column {at}": float(x) for at, x in enumerate(readout.norm(dim=0)[:12])}
    found |= {f"bias {at}": float(x) for at, x in enumerate(bias[:12])}
    middle = readout.abs().sum(1)
    place = torch.linspace(0, 1, len(middle), dtype=middle.dtype)
    return found | {
        "middle": float(place @ middle / middle.sum()),
        "zero": float((readout == 0).double().mean()),
        "rows": float((middle > 0).double().mean()),
    }


@torch.no_grad()
def _whole(case: Case) -> Numbers:
    """Of every parameter but the readout: mean, size, largest, zeros; of `other` too."""
    found: Numbers = {}
    for whose, model in (("", case.model), ("other ", case.other)):
        for name, weight in [] if model is None else model.named_parameters():
            if name.startswith("unembed") or not weight.numel():
                continue
            found |= {
                f"{whose}{name} mean": float(weight.mean()),
                f"{whose}{name} size": float(weight.pow(2).mean().sqrt()),
                f"{whose}{name} most": float(weight.abs().max()),
                f"{whose}{name} zeros": float((weight == 0).double().mean()),
            }
    return found


@torch.no_grad()
def _weights(case: Case, questions: Sequence[Question]) -> list[Numbers]:
    """Norms of the head, or direction, that a question is about; and what units read of it."""
    kind = questions[0].kind
    if kind == "feature":
        facts: Any = [SimpleNamespace(question=question) for question in questions]
        table = norms_along(case, facts).drop(columns="target")
        return [_named(row) for row in table.to_numpy(float)]
    if kind not in (*ABOUT_HEADS, "edge"):
        return [{} for _ in questions]
    table = norms(case.model).set_index("target")
    ranks = table.rank() / len(table)
    blocks, found = case.model.blocks, []
    last = blocks[-1].mlp
    for question in questions:
        head = question.target if kind != "edge" else question.target[0]
        if head is None:
            found.append({"none": 1.0})
            continue
        layer, at = head
        row = table.loc[f"{layer} {at}"].to_numpy(float), ranks.loc[f"{layer} {at}"].to_numpy(float)
        attn = blocks[layer].attn
        moved = attn.W_V[at] @ attn.W_O[at]
        read = moved @ last.W_in
        units = read.norm(dim=0)
        more = [units.max(), (units > 1e-9).double().mean(), (read @ last.W_out).norm()]
        more += [*torch.linalg.svdvals(moved)[:4], *torch.linalg.svdvals(read)[:4]]
        found.append(_named([*row[0], *row[1], *map(float, more)]))
    return found


def _named(values: Iterable[float]) -> Numbers:
    return {str(at): float(value) for at, value in enumerate(values)}
