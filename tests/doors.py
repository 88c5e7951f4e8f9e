"""Every shape of model and task, in the user's own ids, and what each string gets by brute force.

Nothing of what is tested reads these models: an `Oracle` runs the model as the user has it, on the
user's ids, and looks up by hand which logit is of what.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tests.cases import randomise
from tl_dyck import AutomatonTask, DyckTask, Vocabulary, adopt, load_task
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

LONGEST = 4


def ended() -> AutomatonTask:
    """(ab)* and then an end: $ may come first, and after it nothing."""
    moves = {"even": {"a": "odd", "$": "over"}, "odd": {"b": "even"}, "over": {}}
    return AutomatonTask(
        name="ended", symbols=("a", "b", "$"), start="even", moves=moves.__getitem__,
        ends=lambda state: state == "over", train_lengths=(1, 3), long_lengths=(1, 3),
    )  # fmt: skip


def thirds() -> AutomatonTask:
    """Something is asked at lengths 0, 3, …, the empty string too: are there more b than one?"""
    return AutomatonTask(
        name="thirds", symbols=("a", "b"), start=(0, 0),
        moves=lambda s: {x: ((s[0] + 1) % 3, min(2, s[1] + (x == "b"))) for x in "ab"},
        counted=lambda s, x: s[0] == 2 and x == "a",
        answer=lambda s: None if s[0] else int(s[1] > 1), train_lengths=(3,), long_lengths=(2, 4),
    )  # fmt: skip


def _dyck(k: int, deepest: int) -> DyckTask:
    lengths = {"train_lengths": (2, 4), "long_lengths": (3, 4), "mode": "prefix"}
    return DyckTask(name=f"dyck-{k}-{deepest}", n_types=k, max_depth=deepest, **lengths)


TASKS = {
    **{task.name: task for task in (_dyck(1, 3), _dyck(2, 1), _dyck(2, 3), _dyck(3, 2))},
    **{name: load_task(name) for name in ("dyck-1", "shuffle-dyck", "anbncn")},
    **{"ended": ended(), "thirds": thirds()},
}
#: What ids and logits are like: all is said of them, or not.
SAID = ("ours", "theirs", "dead", "mask", "symbols", "shifted", "startless")
UNNAMED = ("raw", "alike", "bare", "bare-more")
KINDS = (*SAID, "unsaid", "classes", *UNNAMED)
FACTORS: dict[str, tuple[Any, ...]] = {
    "task": tuple(TASKS),
    "layers": (1, 2),
    "heads": (1, 2),
    "positions": (False, True),
    "norm": ("LN", "LNPre", "RMS", None),
    "mlp": (False, True),
    "kind": KINDS,
    "biased": (False, True),
}


@dataclass(frozen=True)
class World:
    """A model as a user has it.

    Attributes:
        task: its name.
        layers: 1 or 2.
        heads: in each.
        positions: whether it has any.
        norm: of TransformerLens.
        mlp: or attention alone.
        kind: of `KINDS`.
        biased: whether one symbol is far ahead, so that answers are clear.
    """

    task: str
    layers: int
    heads: int
    positions: bool
    norm: str | None
    mlp: bool
    kind: str
    biased: bool

    @property
    def n(self) -> int:
        """The number of symbols."""
        return len(TASKS[self.task].language.alphabet)

    @property
    def bos(self) -> int | None:
        """The user's id of BOS."""
        if self.kind in ("bare", "bare-more", "startless"):
            return None
        return self.n if self.kind in ("ours", "alike") else 1

    @property
    def ids(self) -> list[int]:
        """The user's id of each symbol."""
        if self.kind in ("ours", "alike", "bare", "bare-more"):
            return list(range(self.n))
        if self.kind == "startless":
            return list(range(self.n, 0, -1))  # behind padding 0, the last first
        return list(range(self.n + 1, 1, -1))  # behind padding 0 and BOS 1, the last first

    @property
    def d_vocab(self) -> int:
        """How many ids there are."""
        more = {"ours": 1, "alike": 1, "bare": 0, "bare-more": 0, "startless": 1, "mask": 3}
        return self.n + more.get(self.kind, 2)

    @property
    def outputs(self) -> list[int | None]:
        """Which id each logit is of, in truth."""
        ids, pad, bos = self.ids, 0, 1
        found: dict[str, list[int | None]] = {
            "dead": [None, *ids[1:], pad, None, ids[0], bos],
            "unsaid": [None, *ids[1:], pad, None, ids[0], bos],
            "mask": [*range(self.n + 2)],  # the mask, the last id, is never predicted
            "symbols": [*ids[2:], *ids[:2]],
            "shifted": [None, *ids, pad],  # as many logits as ids
            "classes": [None] * (self.n + 3),
            "bare-more": [*range(self.n), None, None],
        }
        return found.get(self.kind, [*range(self.d_vocab)])

    @property
    def told(self) -> Sequence[int | None] | None:
        """What the user says of that."""
        if self.kind == "classes":
            return ()
        return self.outputs if self.kind in ("dead", "mask", "symbols", "shifted") else None


@dataclass(frozen=True)
class Oracle:
    """A world's model, run and read by hand."""

    world: World
    model: Any

    @property
    def task(self) -> Any:
        """Of the world."""
        return TASKS[self.world.task]

    @property
    def columns(self) -> list[int]:
        """The logit of each symbol; of what has none, its number itself: a class."""
        outputs, ids = self.world.outputs, self.world.ids
        return [outputs.index(token) if token in outputs else i for i, token in enumerate(ids)]

    def tokens(self, strings: Sequence[Sequence[int]]) -> torch.Tensor:
        """Strings of symbols, of one length, in the user's ids."""
        first = [] if self.world.bos is None else [self.world.bos]
        ids = self.world.ids
        return torch.tensor([[*first, *(ids[s] for s in string)] for string in strings])

    @torch.no_grad()
    def last(self, strings: Sequence[Sequence[int]], model: Any = None, hooks: Any = ()) -> Any:
        """The logits after strings of one length, in the user's order."""
        run = (self.model if model is None else model).run_with_hooks
        return run(self.tokens(strings), fwd_hooks=[*hooks])[:, -1].numpy()

    def margins(
        self,
        strings: Sequence[Sequence[int]],
        wins: Sequence[Sequence[int]],
        among: Any = None,
        **how: Any,
    ) -> np.ndarray:
        """By how much the best symbol of those that may win beats what may not.

        Args:
            strings: of one length.
            wins: symbols, for each.
            among: symbols that may lose; None for all logits but those that may win.
            how: of `last`.
        """  # fmt: skip
        rows = zip(self.last(strings, **how), wins, strict=True)
        return np.array([self.margin(row, may, among) for row, may in rows])

    def margin(self, row: Any, may: Sequence[int], among: Any = None) -> float:
        """That of one string, by its logits."""
        good = [self.columns[s] for s in may]
        every = range(len(row)) if among is None else [self.columns[s] for s in among]
        bad = [c for c in every if c not in good]
        return float(max(row[c] for c in good) - max((row[c] for c in bad), default=-np.inf))

    def grown(self, length: int) -> list[tuple[tuple[int, ...], Any]]:
        """All prefixes of a length, each with its state: of brackets, its stack."""
        found: list[tuple[tuple[int, ...], Any]] = [((), self._start)]
        for _ in range(length):
            found = [((*s, x), after) for s, at in found for x, after in self._moves(at)]
        return found

    @property
    def _start(self) -> Any:
        return () if isinstance(self.task, DyckTask) else self.task.start

    def _moves(self, state: Any) -> Iterator[tuple[int, Any]]:
        if not isinstance(self.task, DyckTask):
            for symbol, after in self.task.moves(state).items():
                yield self.task.symbols.index(symbol), after
            return
        for kind in range(self.task.n_types if len(state) < self.task.max_depth else 0):
            yield 2 * kind, (*state, kind)
        if state:
            yield 2 * state[-1] + 1, state[:-1]

    def asked(self, state: Any) -> int | None:
        """What must be answered in a state: a symbol, or the number of a logit that is of one."""
        task = self.task
        if isinstance(task, DyckTask):
            return 2 * state[-1] + 1 if state else None
        if task.answer is not None:
            return task.answer(state)
        after = [*task.moves(state)]
        counts = task.counted or (lambda state, symbol: len(after) == 1)
        found = [x for x in after if counts(state, x)]
        return task.symbols.index(found[0]) if len(found) == 1 else None

    def follows(self, state: Any) -> list[int]:
        """What may come next."""
        return [symbol for symbol, _ in self._moves(state)]

    def law(self, state: Any) -> dict[int, float]:
        """What may come next, with its probability, of brackets with q = 1/2."""
        opens, closes = [], []
        for x in self.follows(state):
            (closes if x % 2 else opens).append(x)
        share = 0.5 if opens and closes else 1.0
        return {x: share / len(part) for part in (opens, closes) for x in part}

    def chance(self, string: Sequence[int]) -> float:
        """The probability of a prefix among those of its length."""
        state, found = self._start, 1.0
        for x in string:
            found *= self.law(state)[x]
            state = dict(self._moves(state))[x]
        return found

    def patterns(self, tokens: torch.Tensor, model: Any = None) -> torch.Tensor:
        """[layer, batch, head, query, key]."""
        _, cache = (model or self.model).run_with_cache(tokens)
        names = [f"blocks.{i}.attn.hook_pattern" for i in range(self.world.layers)]
        return torch.stack([cache[name] for name in names])

    def log_probs(self, logits: torch.Tensor, strings: Sequence[Sequence[int]]) -> torch.Tensor:
        """The mean log-probability of the symbols of strings of one length, of [batch, pos, …].

        Without BOS, of all but the first.
        """
        every, first = logits.log_softmax(-1), int(self.world.bos is None)
        columns = torch.tensor([[self.columns[s] for s in string[first:]] for string in strings])
        return every[:, :-1].gather(-1, columns[..., None])[..., 0].mean(1)


@lru_cache(maxsize=512)
def oracle(world: World, seed: int = 0) -> Oracle:
    """A world with random weights of double precision."""
    cfg = HookedTransformerConfig(
        n_layers=world.layers, d_model=6, n_heads=world.heads, d_head=3, d_mlp=5, n_ctx=40,
        d_vocab=world.d_vocab, d_vocab_out=len(world.outputs), act_fn="relu",
        attn_only=not world.mlp, normalization_type=world.norm, init_weights=False,
        dtype=torch.float64, device="cpu",
    )  # fmt: skip
    model = HookedTransformer(cfg, move_to_device=False).eval()
    randomise(model, torch.Generator().manual_seed(seed + 1))
    found = Oracle(world, model)
    with torch.no_grad():
        if not world.positions:
            model.pos_embed.W_pos.zero_()
        if world.biased:  # the last symbol, which closes: by so much that nothing else can win
            model.unembed.b_U[found.columns[-1]] += 40.0
    return found


@lru_cache(maxsize=512)
def given(world: World, seed: int = 0) -> Any:
    """The model that a user passes on: adopted, unless its ids are left unsaid."""
    found = oracle(world, seed)
    if world.kind in UNNAMED:
        return found.model
    return adopt(found.model, vocabulary(world), outputs=world.told)


def vocabulary(world: World) -> Vocabulary:
    """What the user says of ids."""
    padding = None if world.ids[0] == 0 else 0
    return Vocabulary(TASKS[world.task].language, world.ids, bos=world.bos, padding=padding)


@lru_cache(maxsize=64)
def twin(world: World) -> Any:
    """The same model with our ids from the start, its weights moved by hand."""
    found = oracle(world)
    model = copy.deepcopy(found.model)
    rows = [*world.ids, *([] if world.bos is None else [world.bos])]
    rows += [token for token in range(world.d_vocab) if token not in rows]
    outputs = world.outputs
    columns = [outputs.index(token) for token in rows if token in outputs]
    said: list[int | None] = [i for i, token in enumerate(rows) if token in outputs]
    said += [None] * (len(outputs) - len(columns))
    columns += [c for c in range(len(outputs)) if c not in columns]
    with torch.no_grad():
        model.embed.W_E.copy_(found.model.embed.W_E[rows])
        model.unembed.W_U.copy_(found.model.unembed.W_U[:, columns])
        model.unembed.b_U.copy_(found.model.unembed.b_U[columns])
    told = () if world.kind == "classes" else said
    language = TASKS[world.task].language
    ours = Vocabulary.ours(language)
    if world.bos is None:
        ours = Vocabulary(language, range(world.n), bos=None)
    return adopt(model, ours, outputs=told)


def cover(factors: dict[str, tuple[Any, ...]], more: int, seed: int) -> list[tuple[Any, ...]]:
    """Rows such that each pair of values of two factors is in one, and so many random rows more."""
    values, rng = list(factors.values()), np.random.default_rng(seed)
    pairs = {
        (i, a, j, b)
        for (i, left), (j, right) in itertools.combinations(enumerate(values), 2)
        for a in left
        for b in right
    }

    def draw(fixed: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(
            fixed[i] if i in fixed else each[rng.integers(len(each))]
            for i, each in enumerate(values)
        )

    def of(row: tuple[Any, ...]) -> set[tuple[int, Any, int, Any]]:
        return {(i, a, j, b) for (i, a), (j, b) in itertools.combinations(enumerate(row), 2)}

    found: dict[tuple[Any, ...], None] = {}
    left = sorted(pairs, key=repr)
    while left:
        i, a, j, b = left[0]
        row = max((draw({i: a, j: b}) for _ in range(8)), key=lambda row: len(of(row) & pairs))
        found[row] = None
        pairs -= of(row)
        left = [pair for pair in left if pair in pairs]
    while more > 0:
        more -= 1
        found[draw({})] = None
    return list(found)
