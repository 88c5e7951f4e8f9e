"""Cases that are trained: two circuits in one body, of which one is heard in the end."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import torch
from torch import Tensor, nn

from tl_dyck.judge.asked import listed, right_answers
from tl_dyck.judge.cases import CaseKind, small_task
from tl_dyck.judge.facts import all_prefixes, margins
from tl_dyck.judge.protocol import Case, Fact, JudgeError
from tl_dyck.judge.small_tasks import BRACKETS, TASKS, small_automaton
from tl_dyck.kit.check import check_integer_fields, check_number
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.registry import unknown_name
from tl_dyck.models import DyckTransformerConfig, build_model
from tl_dyck.models.lean import lean_logits
from tl_dyck.tasks import DyckTask
from tl_dyck_hooks.cases.heads import reorder
from tl_dyck_hooks.cases.pose import (
    TOKENS,
    about_heads,
    about_stack,
    choose,
    every_prefix,
    every_string,
    generator_of,
    pose,
    right_at_length,
)
from tl_dyck_hooks.cases.shut import hide

TRAINED = {
    "trained": "Two groups of heads are trained for two readouts of one task; one is left.",
}
HIDDEN = "hidden"
#: Trained as "trained", with four or eight heads in one layer or two; of these weights tell less,
#: see `tl_dyck_hooks.cases.shut.hide`.
LARGER = {HIDDEN: "As trained, with four heads a layer, and weights that tell less."}
#: The same for one of several tasks, with two to four heads a layer; of the second kind weights
#: tell less.
OF_TASKS = {f"{before}-{name}": said for before in ("task", HIDDEN) for name, said in TASKS.items()}
# of judge-2.4, whose cases are recorded: as `tl_dyck_hooks.cases.pose.NEITHER`
_NEITHER_OF_TASKS = 0.5
_PART = 16  # coordinates of symbols and places, and of each group: no model has more than 48
_TRIES = 6  # models, until one is right on every string

_STEPS = 300  # of one attempt
_EVERY = 50  # after as many, models of several tasks may be right on every string
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
    return case, [*facts, *about_stack(right_at_length(model, task.language))]


@one_thread()
def task_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of `LARGER` or `OF_TASKS`, of whose heads is asked; of the first models that learn it.

    Of `LARGER` it is asked of brackets, too. Its weights are numbers of float32, so that a file of
    them is half as large.

    Raises:
        JudgeError: none of some tries has learnt the task.
    """
    generator = generator_of(kind, seed)
    for _ in range(_TRIES):
        task, config, share = _drawn(kind, given, generator)
        try:
            models = two_circuits(
                config, task, share, generator, _EVERY, hidden=kind.startswith(HIDDEN)
            )
            if kind in LARGER:
                models = models[0].float().double(), models[1].float().double()
            model, mirror = (every_string(each, task, f"{kind}-{seed}") for each in models)
        except JudgeError:
            continue
        if kind in LARGER:
            return pose(model, task, generator, about_heads(mirror), TOKENS)
        return pose(model, task, generator, about_heads(mirror, _NEITHER_OF_TASKS))
    raise JudgeError(f"{kind}-{seed}: none of {_TRIES} models has learnt the task")


@one_thread()
def trained_models(
    given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Any, DyckTask]:
    """Two models of brackets, see `two_circuits`, and their task.

    Args:
        given: any of n_types, max_depth, n_heads (of each layer), true_share (of heads that are in
            the first group), block ("eq6" or "gpt"); else drawn. n_layers, else 1.
        generator: of everything that is drawn.
    """
    sizes = draw_sizes(given, generator)
    task = small_task(sizes.n_types, sizes.max_depth)
    config = _config(task, sizes.block, sizes.n_layers, sizes.n_heads)
    return *two_circuits(config, task, sizes.true_share, generator), task


def two_circuits(
    config: DyckTransformerConfig,
    task: Any,
    share: float,
    generator: torch.Generator,
    every: int = _STEPS,
    *,
    hidden: bool = False,
) -> tuple[Any, Any]:
    """A model that was trained, and the same with the other circuit heard.

    Heads and units of the MLP are of one of two groups, which write to coordinates of their own and
    share all else, norms too. Each group has an unembedding, and both are trained, for the same;
    then one is set to zero. Nothing but that tells the groups apart. Of several layers, weights let
    what the first ones read through to the readout by later heads alone.

    Args:
        config: of the models.
        task: of brackets, or small: every string is run.
        share: of heads that are in the first group.
        generator: of everything that is drawn.
        every: after as many steps it is seen whether both are right everywhere.
        hidden: whether weights tell less of what is heard, see `tl_dyck_hooks.cases.shut.hide`.
    """
    model = build_model(config, seed=int(torch.randint(2**31, (1,), generator=generator)))
    n_heads = model.cfg.n_heads
    # one head at least in the first group; the share is below 1, so that one is left for the other
    first = 1 + int(share * (n_heads - 1))
    order = torch.randperm(n_heads, generator=generator).tolist()
    models = _train(model, task, generator, order[:first], every)
    if hidden:
        models = hide(models, config, _taught(task)[0], generator)
    for each in models:
        reorder(each, generator, config.d_model // 3)
    return models


def _config(
    task: Any, block: str, n_layers: int, n_heads: int, **options: Any
) -> DyckTransformerConfig:
    """Of brackets a state has a coordinate of its own; of other tasks symbols and places have."""
    read = DyckTransformerConfig.read(task.language)
    if isinstance(task, DyckTask):
        # an opening and a closing bracket of each type and depth, and BOS
        part = 2 * task.n_types * task.max_depth + 1
        # 128: `LONGEST` brackets, BOS, and some room; half of the units for each group
        own: dict[str, Any] = {"embedding": "onehot", "n_ctx": 128, "d_mlp": 2 * part}
    else:
        part = _PART
        own = {"position": "learned", "n_ctx": max(task.train_lengths) + 1, "d_mlp": 4 * part}
    # a third for states, a third for each group, see `_masks`
    own |= {"d_model": 3 * part, "d_head": part, **options}
    return DyckTransformerConfig(
        **read, model_name="judged", block=block, n_layers=n_layers, n_heads=n_heads,
        act_fn="relu", dtype=torch.float64, **own,
    )  # fmt: skip


def _drawn(
    kind: str, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, DyckTransformerConfig, float]:
    """Task, sizes and share of heads of a model of a small task."""
    name = task_name(kind)
    # what is hidden is taken away by an MLP, which must see what the readout does: no norm between
    blocks = ("eq6",) if kind.startswith(HIDDEN) else ("eq6", "gpt")
    task: Any = small_task(2, 3) if name == BRACKETS else small_automaton(name)
    drawn = {
        "n_heads": choose(generator, (4,) if kind in LARGER else (2, 3, 4)),
        "true_share": float(torch.rand(1, generator=generator)) * 0.999,
        "block": choose(generator, blocks),
        "n_layers": choose(generator, (1, 2)),
    }
    sizes = _Sizes(n_types=2, max_depth=2, **{**drawn, **given})
    if sizes.block not in blocks:
        raise unknown_name("block of a case", sizes.block, blocks)
    config = _config(task, sizes.block, sizes.n_layers, sizes.n_heads)
    return task, config, sizes.true_share


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
    return _Sizes(**{**drawn, **given})


def task_name(kind: str) -> str:
    """The name in `TASKS` of one of `LARGER` or `OF_TASKS`."""
    return kind.partition("-")[2] or BRACKETS


def _taught(task: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Every string; what is learnt after each token, as probabilities; and what is right there.

    Of brackets that is the exact law of the next one, of other tasks the right answer, if any.
    """
    length = max(task.train_lengths)
    if isinstance(task, DyckTask):
        tokens = all_prefixes(task.language, length)
        law = task.distribution.next_token_probs(tokens)
        return tokens, law, right_answers(task, tokens)
    rows = listed(task, length)
    assert rows is not None  # small tasks have few strings
    tokens = torch.from_numpy(rows)
    right = right_answers(task, tokens)
    answers = nn.functional.one_hot(right.clamp(min=0), task.language.d_vocab).double()
    return tokens, answers * (right >= 0)[..., None], right


def _train(
    model: Any, task: Any, generator: torch.Generator, first: list[int], every: int
) -> tuple[Any, Any]:
    """Fit what is taught by each group, until both are right everywhere when they are looked at.

    While one is heard, each head of the other is louder or softer at random, so that neither comes
    to rely on the size of what both write, which norms see.
    """
    tokens, law, right = _taught(task)
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    held: dict[tuple[int, Any, str], Tensor] = {}  # by layer, module and name
    for layer, block in enumerate(model.blocks):
        for module, name in ((block.attn, "W_O"), (block.mlp, "W_in"), (block.mlp, "W_out")):
            held[layer, module, name] = getattr(module, name)
        if layer:
            held[layer, block.attn, "W_V"] = block.attn.W_V
    held[n_layers, model.unembed, "W_U"] = model.unembed.W_U
    if model.cfg.embedding == "token":
        held[0, model.embed, "W_E"] = model.embed.W_E
        held[0, model.pos_embed, "W_pos"] = model.pos_embed.W_pos
    group_of = torch.tensor([int(head not in first) for head in range(n_heads)])
    masks = _masks(model, group_of)
    optimiser = torch.optim.Adam(model.parameters(), lr=_RATE)

    def put(group: int, loud: Tensor) -> None:
        for (layer, module, name), weight in held.items():
            louder = loud[layer, :, None, None] if name == "W_O" else 1.0
            setattr(module, name, weight * masks[group][layer, name] * louder)

    def loss(group: int, rows: Tensor) -> Tensor:
        # from 0 to 2, so that it is 1 in the mean
        drawn = 2 * torch.rand(n_layers, n_heads, generator=generator, dtype=law.dtype)
        put(group, torch.where(group_of == group, 1.0, drawn))
        return -(law[rows] * lean_logits(model, tokens[rows]).log_softmax(-1)).sum(-1).mean()

    for _, module, name in held:
        delattr(module, name)  # in its place stands what is read of it

    def right_everywhere() -> bool:
        found, loud = True, torch.ones(n_layers, n_heads, dtype=law.dtype)
        for group in range(2):
            put(group, loud)
            with torch.no_grad():
                # by 0.01 nats and not by rounding, so that other hardware agrees
                found &= bool((margins(lean_logits(model, tokens), right) > 0.01).all())
        return found

    for made in range(_STEPS * (1 + _MORE)):
        attempt, step = divmod(made, _STEPS)
        # falls to 0 in each attempt, and begins lower in each: later ones refine
        optimiser.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS) / (1 + attempt)
        with torch.enable_grad():
            optimiser.zero_grad()
            rows = torch.randint(len(tokens), (_BATCH,), generator=generator)
            (loss(0, rows) + loss(1, rows)).backward()
        optimiser.step()
        if (made + 1) % every == 0 and right_everywhere():
            break
    for (layer, module, name), weight in held.items():
        delattr(module, name)
        setattr(module, name, nn.Parameter(weight.detach() * masks[0][layer, name]))
    mirror = copy.deepcopy(model)
    readout = held[n_layers, model.unembed, "W_U"].detach()
    mirror.unembed.W_U = nn.Parameter(readout * masks[1][n_layers, "W_U"])
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
    shared = {(0, name): thirds == 0 for name in ("W_E", "W_pos")}
    for layer in range(n_layers):
        wrote = ~early if layer == n_layers - 1 else early
        shared[layer, "W_O"] = (of_head & wrote)[:, None]
        shared[layer, "W_V"] = (of_head & early)[..., None]
        shared[layer, "W_in"] = (own | (thirds == 0)).T
        shared[layer, "W_out"] = own
    # the first group has third 1, the second third 2: the readout leaves out the other's
    unheard = [(thirds != 2 - group)[:, None] & ~early[:, None] for group in range(2)]
    return [{**shared, (n_layers, "W_U"): each} for each in unheard]


#: What may be given; of models of a task that is named, no language.
SIZES = tuple(field.name for field in fields(_Sizes))
_OF_TASKS = tuple(name for name in SIZES if name not in ("n_types", "max_depth"))
ONE_LAYER = CaseKind(make=train_case, knobs=SIZES, group=lambda kind: "trained")
WEIGHTS_TELL_LESS = CaseKind(make=task_case, knobs=_OF_TASKS, group=lambda kind: kind)
OF_A_TASK = CaseKind(make=task_case, knobs=_OF_TASKS, group=task_name)
