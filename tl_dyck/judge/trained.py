"""Cases that are trained, with one truth enforced: a head that cannot matter, or a pattern."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from tl_dyck.check import check_integer_fields, check_number
from tl_dyck.environment import one_thread
from tl_dyck.judge.constructed import generator_of, pose, small_task, with_length_facts
from tl_dyck.judge.heads import Workshop
from tl_dyck.judge.protocol import Case, Fact
from tl_dyck.models import DyckTransformerConfig, build_model
from tl_dyck.models.lean import lean_logits
from tl_dyck.registry import unknown_name
from tl_dyck.tasks import DyckTask

TRAINED = {
    "trained-uniform": "Trained with attention frozen to uniform: no pattern matters.",
    "trained-silenced": "Trained; then one head's output is projected out, and the rest goes on.",
    "trained-constant": "Trained beside a head that looks at the stack and writes a constant.",
}

_STEPS = 300
_MORE = 4  # times as many again, at most, until every prefix is right
_BATCH = 48
_RATE = 1e-2


@final
@dataclass(frozen=True, kw_only=True)
class _Sizes:
    n_types: int
    max_depth: int
    n_heads: int
    strength: float
    block: str

    def __post_init__(self) -> None:
        check_integer_fields(self, n_types=2, max_depth=2, n_heads=1)
        check_number("strength", self.strength, 0)
        if self.block not in ("eq6", "gpt"):
            raise unknown_name("block of a case", self.block, ("eq6", "gpt"))


@one_thread()
def train_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of one of `TRAINED`, and its facts.

    Args:
        kind: of model.
        seed: of everything that is drawn.
        given: any of n_types, max_depth, n_heads, strength, block ("eq6" or "gpt"); else drawn.
    """
    generator = generator_of(kind, seed)
    sizes = _drawn(given, generator)
    task = small_task(sizes.n_types, sizes.max_depth)
    needed = 4 * sizes.n_types * sizes.max_depth + 4 + sizes.n_types
    config = DyckTransformerConfig(
        n_types=sizes.n_types,
        max_depth=sizes.max_depth,
        model_name=kind,
        embedding="onehot",
        block=sizes.block,
        attention="uniform" if kind == "trained-uniform" else "softmax",
        n_layers=1,
        n_heads=sizes.n_heads,
        d_model=needed,
        d_head=2 * sizes.n_types * sizes.max_depth + 1,
        d_mlp=2 * sizes.n_types * sizes.max_depth,
        act_fn="relu",
        n_ctx=128,
        dtype=torch.float64,
    )
    model = build_model(config, seed=int(torch.randint(2**31, (1,), generator=generator)))
    head = int(torch.randint(sizes.n_heads, (1,), generator=generator))
    hold: Callable[[], None] = _nothing
    if kind == "trained-constant":
        hold = _constant(model, head, sizes.strength, generator)
    _train(model, task, generator, hold)
    if kind == "trained-silenced":
        hold = _silence(model, head)
        _train(model, task, generator, hold)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    case, facts = pose(kind, seed, model, task, generator)
    return with_length_facts(case, facts, exact=False)


def _drawn(given: Mapping[str, Any], generator: torch.Generator) -> _Sizes:
    def choice(values: tuple[Any, ...]) -> Any:
        return values[int(torch.randint(len(values), (1,), generator=generator))]

    k, deepest = choice(((2, 2), (2, 3), (3, 2)))
    drawn = {
        "n_types": k,
        "max_depth": deepest,
        "n_heads": choice((2, 3, 4)),
        "strength": choice((2.0, 4.0, 8.0)),
        "block": choice(("eq6", "gpt")),
    }
    for name in given:
        if name not in drawn:
            raise unknown_name("knob of a case", name, drawn)
    return _Sizes(**{**drawn, **given})


def _nothing() -> None:
    """Hold nothing."""


def _silence(model: Any, head: int) -> Callable[[], None]:
    """Project a head's output out, and keep it so."""

    def hold() -> None:
        model.blocks[0].attn.W_O[head] = 0

    return hold


def _constant(
    model: Any, head: int, strength: float, generator: torch.Generator
) -> Callable[[], None]:
    """A head that looks at brackets of the query's depth, and whose value is one vector."""
    attn = model.blocks[0].attn
    shop = Workshop(model.cfg.language, generator)
    # a LayerNorm makes one-hot states larger, by about √d_model in query and key
    size_of_states = float(model.cfg.d_model) if model.cfg.block == "gpt" else 1.0
    query, key = shop.levels(strength / size_of_states)
    states, size = shop.n_states, attn.W_Q.shape[-1]
    looks = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    fixed: dict[str, Tensor] = {
        name: torch.zeros_like(getattr(attn, name)[head]) for name in ("W_Q", "W_K", "W_V", "b_Q")
    }
    fixed["W_Q"][:states] = query[:states] @ looks[:states] * attn.attn_scale
    fixed["W_K"][:states] = key[:states] @ looks[:states]
    fixed["b_V"] = torch.randn(size, generator=generator, dtype=torch.float64)

    def hold() -> None:
        for name, value in fixed.items():
            getattr(attn, name)[head] = value

    return hold


def _train(
    model: Any, task: DyckTask, generator: torch.Generator, hold: Callable[[], None]
) -> None:
    """Fit the exact law of the next bracket, until every prefix is closed right."""
    from tl_dyck.judge.facts import all_prefixes, margins

    tokens = all_prefixes(task.language, max(task.train_lengths))
    law = task.distribution.next_token_probs(tokens)
    right = task.language.right_bracket(tokens)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(weights, lr=_RATE)
    with torch.no_grad():
        hold()
    for attempt in range(1 + _MORE):
        for step in range(_STEPS):
            rows = torch.randint(len(tokens), (_BATCH,), generator=generator)
            optimiser.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS) / (1 + attempt)
            with torch.enable_grad():
                logits = lean_logits(model, tokens[rows])
                loss = -(law[rows] * logits.log_softmax(-1)).sum(-1).mean()
                optimiser.zero_grad()
                loss.backward()
            optimiser.step()
            with torch.no_grad():
                hold()
        with torch.no_grad():
            if bool((margins(lean_logits(model, tokens), right) > 0.01).all()):
                return
