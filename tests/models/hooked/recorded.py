"""What TransformerLens 3.9.0 answered, so that ours is held to it on TransformerLens 4 as well.

`python -m tests.models.hooked.recorded` writes the file, in an environment with that release.
Of a tensor it keeps its form, its length as a vector, and two of its components along fixed
directions, in which nearly every change is seen. Of everything else it keeps all.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformer_lens import FactoredMatrix

FILE = Path(__file__).with_name("transformer_lens-3.9.0.npz")
RELEASE = "3.9.0"
#: Share of a tensor's length by which another processor's sums may be off, by precision.
_OFF = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
#: As a part of the largest tensor in an answer: some gradients are nothing but rounding.
_LEAST = 0.1
#: Questions of this kind pass through single precision whatever the model's: TransformerLens
#: processes weights of 64 bits in 32.
_SINGLE = "processed: "


def summary(answer: Any, least: float = 0.0) -> tuple[Any, list[float], list[float]]:
    """The form of an answer as JSON values, its numbers, and by how much each may be off.

    No number of a tensor is held to more than the share `least` of the tensor's length.
    """
    numbers: list[float] = []
    allowed: list[tuple[float, float]] = []  # share, and of what

    def form(value: Any) -> Any:
        if isinstance(value, FactoredMatrix):
            return ["product", form(value.A), form(value.B)]
        if isinstance(value, Tensor):
            said, found = _tensor(value)
            numbers.extend(found)
            # whole numbers are exact, but their components are sums of float64
            share = max(_OFF.get(value.dtype, _OFF[torch.float64]), least)
            allowed.extend([(share, found[0])] * len(found))
            return said
        if isinstance(value, dict):
            return {str(key): form(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [form(each) for each in value]
        if isinstance(value, float):
            numbers.append(float(value))
            allowed.append((1e-9, abs(float(value))))
            return "number"
        return repr(value)

    found = form(answer)
    largest = max((length for _, length in allowed), default=0.0)
    return found, numbers, [share * (length + _LEAST * largest) for share, length in allowed]


def _tensor(value: Tensor) -> tuple[str, list[float]]:
    flat = value.detach().double().flatten().cpu()
    kept = torch.where(flat.isfinite(), flat, 0.0)
    at = torch.arange(1, len(flat) + 1, dtype=torch.float64)
    numbers = [kept.norm(), kept @ at.cos(), kept @ (math.sqrt(2) * at).cos()]
    odd = [int(flat.isnan().sum()), int((flat == math.inf).sum()), int((flat == -math.inf).sum())]
    said = f"{value.dtype} {list(value.shape)} {odd if any(odd) else ''}".strip()
    return said, [float(number) for number in numbers]


@cache
def recorded() -> dict[str, Any]:
    """What the file says: "forms" and "numbers" by question, "signatures", "options"."""
    with np.load(FILE, allow_pickle=False) as found:
        said = json.loads(bytes(found["text"]))
        ends = np.cumsum([0, *said["counts"]])
        numbers = [found["numbers"][a:b].tolist() for a, b in itertools.pairwise(ends)]
    return {**said, "numbers": dict(zip(said["forms"], numbers, strict=True))}


def differences(name: str, answer: Any) -> list[str]:
    """Where an answer to a question is another than the recorded one; nothing if it is that."""
    least = _OFF[torch.float32] if name.startswith(_SINGLE) else 0.0
    form, numbers, errors = summary(answer, least)
    kept = recorded()
    wanted = kept["numbers"][name]
    if form != kept["forms"][name]:
        return [f"{form} where TransformerLens {RELEASE} has {kept['forms'][name]}"]
    return [
        f"number {at}: {mine} where TransformerLens {RELEASE} has {theirs}"
        for at, (mine, theirs, error) in enumerate(zip(numbers, wanted, errors, strict=True))
        if not abs(mine - theirs) <= error
    ]


def signatures(kind: type) -> dict[str, list[str]]:
    """Parameters of the public methods of a class."""
    return {
        name: list(inspect.signature(each).parameters)
        for name, each in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


def main() -> None:
    """Write the file."""
    import transformer_lens

    from tests.models.hooked import options
    from tests.models.hooked.questions import QUESTIONS
    from tl_dyck.models import hooked

    if (found := metadata.version("transformer_lens")) != RELEASE:
        raise SystemExit(f"this is TransformerLens {found}: run it with `make setup TL={RELEASE}`")
    asked = {**QUESTIONS, **{options.name(*each): each for each in options.TABLE}}
    answers = {
        name: options.ask(hooked, *ask) if isinstance(ask, tuple) else ask(hooked)
        for name, ask in asked.items()
    }
    summaries = {name: summary(answer) for name, answer in answers.items()}
    said = {
        "forms": {name: form for name, (form, _, _) in summaries.items()},
        "counts": [len(numbers) for _, numbers, _ in summaries.values()],
        "signatures": signatures(transformer_lens.HookedTransformer),
        "options": [f.name for f in dataclasses.fields(transformer_lens.HookedTransformerConfig)],
    }
    text = np.frombuffer(json.dumps(said, separators=(",", ":")).encode(), dtype=np.uint8)
    numbers = np.array([each for _, found, _ in summaries.values() for each in found])
    np.savez_compressed(FILE, text=text, numbers=numbers)
    print(f"{FILE}: {len(answers)} answers, {len(numbers)} numbers, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
