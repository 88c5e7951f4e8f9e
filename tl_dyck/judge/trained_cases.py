"""Cases that are trained: two circuits in one body, of which one is heard in the end."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from tl_dyck.judge.facts import all_prefixes, margins
from tl_dyck.judge.heads import reorder
from tl_dyck.judge.pose import (
    TOKENS,
    about_heads,
    ask_at_length,
    choose,
    every_prefix,
    generator_of,
    pose,
    small_task,
)
from tl_dyck.judge.protocol import Case, Fact
from tl_dyck.kit.check import check_integer_fields, check_number
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.registry import unknown_name
from tl_dyck.models import DyckTransformerConfig, build_model
from tl_dyck.models.lean import lean_logits
from tl_dyck.tasks import DyckTask

TRAINED = {
    "trained": "Two groups of heads are trained for two readouts of one task; one is left.",
}

_STEPS = 300  # of one attempt
_MORE = 4  # times as many again, at most, until every prefix is right
# prefixes a step, drawn from the thousand or so that there are
_BATCH = 48
_RATE = 1e-2  # of Adam at the first step; it falls to 0


@final
@dataclass(frozen=True, kw_only=True)
class _Sizes:
    n_types: int
    max_depth: int
    n_heads: int
    true_share: float
    block: str
    n_layers: int = 1

    def __post_init__(self) -> None:
        # two heads at least: one for each group
        check_integer_fields(self, n_types=2, max_depth=2, n_heads=2, n_layers=1)
        check_number("true_share", self.true_share, 0, 1)
        if self.block not in ("eq6", "gpt"):
            raise unknown_name("block of a case", self.block, ("eq6", "gpt"))


@one_thread()
def train_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of one of `TRAINED`, and its facts: of the first of `trained_models`."""
    generator = generator_of(kind, seed)
    model, mirror, task = trained_models(given, generator)
    world = every_prefix(model, task, f"{kind}-{seed}")
    case, facts = pose(world, task, generator, about_heads(every_prefix(mirror, task)), TOKENS)
    return ask_at_length(case, facts, exact=False)


@one_thread()
def trained_models(
    given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Any, DyckTask]:
    """A model that was trained, the same with the other circuit heard, and their task.

    Heads and units of the MLP are of one of two groups, which write to coordinates of their own and
    share all else, norms too. Each group has an unembedding, and both are trained, for the same;
    then one is set to zero. Nothing but that tells the groups apart. Of several layers, weights let
    what the first ones read through to the readout by later heads alone.

    Args:
        given: any of n_types, max_depth, n_heads (of each layer), true_share (of heads that are in
            the first group), block ("eq6" or "gpt"); else drawn. n_layers, else 1.
        generator: of everything that is drawn.
    """
    sizes = draw_sizes(given, generator)
    task = small_task(sizes.n_types, sizes.max_depth)
    # an opening and a closing bracket of each type and depth, and BOS
    states = 2 * sizes.n_types * sizes.max_depth + 1
    config = DyckTransformerConfig(
        n_types=sizes.n_types,
        max_depth=sizes.max_depth,
        model_name="judged",
        embedding="onehot",
        block=sizes.block,
        n_layers=sizes.n_layers,
        n_heads=sizes.n_heads,
        # a third for states, a third for each group, see `_masks`
        d_model=3 * states,
        d_head=states,
        # half of the units for each group
        d_mlp=2 * states,
        act_fn="relu",
        # `LONGEST` brackets, BOS, and some room
        n_ctx=128,
        dtype=torch.float64,
    )
    model = build_model(config, seed=int(torch.randint(2**31, (1,), generator=generator)))
    # one head at least in the first group; true_share is below 1, so that one is left for the other
    first = 1 + int(sizes.true_share * (sizes.n_heads - 1))
    order = torch.randperm(sizes.n_heads, generator=generator).tolist()
    models = _train(model, task, generator, order[:first])
    for each in models:
        reorder(each, generator, states)
    return *models, task


def draw_sizes(given: Mapping[str, Any], generator: torch.Generator) -> _Sizes:
    """The sizes, drawn where they are not given; what is given changes no other."""
    k, deepest = choose(generator, ((2, 2), (2, 3), (3, 2)))
    drawn = {
        "n_types": k,
        "max_depth": deepest,
        "n_heads": choose(generator, (2, 3, 4)),
        # below 1 also after rounding: else the second group could have no head
        "true_share": float(torch.rand(1, generator=generator)) * 0.999,
        "block": choose(generator, ("eq6", "gpt")),
        "n_layers": 1,
    }
    for name in given:
        if name not in drawn:
            raise unknown_name("knob of a case", name, drawn)
    return _Sizes(**{**drawn, **given})


def _train(
    model: Any, task: DyckTask, generator: torch.Generator, first: list[int]
) -> tuple[Any, Any]:
    """Fit the exact law of the next bracket by each group, until both close all right.

    While one is heard, each head of the other is louder or softer at random, so that neither comes
    to rely on the size of what both write, which norms see.
    """
    tokens = all_prefixes(task.language, max(task.train_lengths))
    law = task.distribution.next_token_probs(tokens)
    right = task.language.right_bracket(tokens)
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    held: dict[tuple[int, Any, str], Tensor] = {}  # by layer, module and name
    for layer, block in enumerate(model.blocks):
        for module, name in ((block.attn, "W_O"), (block.mlp, "W_in"), (block.mlp, "W_out")):
            held[layer, module, name] = getattr(module, name)
        if layer:
            held[layer, block.attn, "W_V"] = block.attn.W_V
    held[n_layers, model.unembed, "W_U"] = model.unembed.W_U
    group_of = torch.tensor([int(head not in first) for head in range(n_heads)])
    masks = _masks(model, group_of)
    optimiser = torch.optim.Adam(model.parameters(), lr=_RATE)

    def put(group: int, loud: Tensor) -> None:
        for (layer, module, name), weight in held.items():
            used = weight * masks[group][layer, name]
            setattr(module, name, used * loud[layer, :, None, None] if name == "W_O" else used)

    def loss(group: int, rows: Tensor) -> Tensor:
        # from 0 to 2, so that it is 1 in the mean
        drawn = 2 * torch.rand(n_layers, n_heads, generator=generator, dtype=law.dtype)
        put(group, torch.where(group_of == group, 1.0, drawn))
        told = lean_logits(model, tokens[rows]).log_softmax(-1)
        return -(law[rows] * told).sum(-1).mean()

    for _, module, name in held:
        delattr(module, name)  # in its place stands what is read of it
    for attempt in range(1 + _MORE):
        for step in range(_STEPS):
            rows = torch.randint(len(tokens), (_BATCH,), generator=generator)
            # falls to 0 in each attempt, and begins lower in each: later ones refine
            optimiser.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS) / (1 + attempt)
            with torch.enable_grad():
                optimiser.zero_grad()
                (loss(0, rows) + loss(1, rows)).backward()
            optimiser.step()
        with torch.no_grad():
            done = True
            for group in range(2):
                put(group, torch.ones(n_layers, n_heads, dtype=law.dtype))
                # right by 0.01 nats and not by rounding, so that other hardware agrees
                done &= bool((margins(lean_logits(model, tokens), right) > 0.01).all())
        if done:
            break
    for (layer, module, name), weight in held.items():
        delattr(module, name)
        setattr(module, name, nn.Parameter(weight.detach() * masks[0][layer, name]))
    mirror = copy.deepcopy(model)
    readout = held[n_layers, model.unembed, "W_U"].detach() * masks[1][n_layers, "W_U"]
    mirror.unembed.W_U = nn.Parameter(readout)
    return model, mirror


def _masks(model: Any, group_of: Tensor) -> list[dict[tuple[int, str], Tensor]]:
    """Where weights count, by layer and name, if the first group is heard and if the second is.

    A third of the stream is of states, which all read, and one of each group: none writes to, or
    reads, the other's. Of several layers, heads of all but the last write to one half of their
    group's, of which later heads have their values; the last, and MLPs, have the other half.
    """
    n_layers, units, part = model.cfg.n_layers, model.cfg.d_mlp // 2, model.cfg.d_model // 3
    coordinate = torch.arange(model.cfg.d_model)
    thirds = coordinate // part  # 0: states, 1 and 2: the groups
    # the first half of each group's third, where there is a layer that reads it
    early = (coordinate % part < part // 2) & (thirds > 0) & (n_layers > 1)
    of_unit = torch.arange(2 * units) // units
    own = (thirds == 1 + of_unit[:, None]) & ~early  # unit, coordinate
    of_head = thirds == 1 + group_of[:, None]  # head, coordinate
    shared = {}
    for layer in range(n_layers):
        wrote = ~early if layer == n_layers - 1 else early
        shared[layer, "W_O"] = (of_head & wrote)[:, None]
        shared[layer, "W_V"] = (of_head & early)[..., None]
        shared[layer, "W_in"] = (own | (thirds == 0)).T
        shared[layer, "W_out"] = own
    # the first group has third 1, the second third 2: the readout leaves out the other's
    unheard = [(thirds != 2 - group)[:, None] & ~early[:, None] for group in range(2)]
    return [{**shared, (n_layers, "W_U"): each} for each in unheard]
