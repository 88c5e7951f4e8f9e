"""Circuits of heads: how faithful they are, as MIB defines it, and what is true of the same ones.

Mueller et al. 2025 (MIB, arXiv 2504.13151): m(C) is the mean logit difference between the right
answer and the other string's, where all that is outside a circuit C puts out what it does on the
other string. Faithfulness is f(C) = (m(C) − m(∅)) / (m(N) − m(∅)), N being all of the model. Of
circuits C_k that hold a share k of it, CPR is the area under f(C_k), CMD that under |1 − f(C_k)|.

Here parts are heads, all else stays; the other string has all types exchanged, as for "carries", or
what is outside puts out zeros, as for "needed"; and every number of heads from none to all is a
size, where MIB has ten sizes by trapezoids.

Knows: what a circuit is, and that what it does is told by every prefix or by a sample of strings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tl_dyck.ablation.replay import Replay
from tl_dyck.judge.asked import exchange_types
from tl_dyck.judge.facts import TIE, Enumeration, difference, margins
from tl_dyck.judge.protocol import Case
from tl_dyck.judge.rates import auroc
from tl_dyck.models.lean import LeanTail
from tl_dyck.reading.interventions import Hook, run

#: (layer, head).
Head = tuple[int, int]
Circuit = frozenset[Head]

_MOST_NUMBERS = 20_000_000  # that are kept of what comes into the last layer, 160 MB


@final
@dataclass(frozen=True, kw_only=True)
class CircuitEffect:
    """What one circuit does.

    Attributes:
        faithfulness: f(C) on the strings that a method sees.
        exact_faithfulness: f(C) on every prefix, by its probability.
        kept: exact share of closing brackets that the circuit has right, of every prefix.
        sound: whether it has all right that the model has.
    """

    faithfulness: float
    exact_faithfulness: float
    kept: float
    sound: bool


@final
@dataclass(frozen=True, kw_only=True)
class Areas:
    """What a circuit of each size does: two numbers of MIB's, and the truth about the same ones.

    Attributes:
        cpr: area under f(C_k) on the strings that a method sees; 1 is all of the model.
        cmd: area under |1 − f(C_k)|; 0 is best.
        exact_cpr: `cpr` on every prefix.
        exact_cmd: `cmd` on every prefix.
        kept: area under the exact share of closing brackets that C_k has right.
        sound: share of sizes at which it has all right that the model has.
        found: probability that a head that carries (with zeros: is needed) comes before one that
            does not, ties counted half; NaN if all do, or none.
    """

    cpr: float
    cmd: float
    exact_cpr: float
    exact_cmd: float
    kept: float
    sound: float
    found: float


@final
class Outside:
    """A model whose heads outside of a circuit put out something else.

    What comes into the last layer, and what its heads do, hang on the heads below alone: of a model
    of the usual shape that is kept, and only the rest is run for each circuit.

    Args:
        model: of several heads.
        tokens: strings, ``[n, pos]``.
        instead: what heads put out then, ``[1 or n, 1 or pos, head, d_head]`` for each layer.
    """

    def __init__(self, model: Any, tokens: Tensor, instead: Sequence[Tensor]) -> None:
        self._model, self._tokens, self._instead = model, tokens, instead
        self._lean = LeanTail(model) if LeanTail.fits(model) else None
        self._last, self._kept = len(instead) - 1, dict[Circuit, tuple[Tensor, Tensor]]()

    @torch.no_grad()
    def logits(self, circuit: Collection[Head], rows: list[int] | slice = slice(None)) -> Tensor:
        """The logits ``[n, pos, d_vocab]``, on all strings or some."""
        below = frozenset(head for head in circuit if head[0] < self._last)
        few = isinstance(rows, list) and below not in self._kept  # which take no time
        if self._lean is None or few:
            hooks = self._hooks(circuit, range(self._last + 1), rows)
            return run(self._model, self._tokens[rows], hooks)
        before, z = (each[rows] for each in self._into_last(below))
        attn = self._model.blocks[self._last].attn
        z = self._swapped(z, circuit, self._last, rows)
        out = z.flatten(2) @ attn.W_O.flatten(0, 1) + attn.b_O
        return self._lean.run(self._last, before, out)

    def _into_last(self, below: Circuit) -> tuple[Tensor, Tensor]:
        """What comes into the last layer, and what its heads put out, on all strings."""
        if below not in self._kept:
            kept: dict[str, Tensor] = {}

            def keep(found: Tensor, hook: Any) -> Tensor:
                kept[hook.name] = found
                return found

            names = [f"blocks.{self._last}.{name}" for name in ("hook_resid_pre", "attn.hook_z")]
            hooks = self._hooks(below, range(self._last), slice(None))
            run(self._model, self._tokens, [*hooks, *((name, keep) for name in names)])
            numbers = sum(each.numel() for each in kept.values())
            while self._kept and (len(self._kept) + 1) * numbers > _MOST_NUMBERS:
                del self._kept[next(iter(self._kept))]
            self._kept[below] = kept[names[0]], kept[names[1]]
        return self._kept[below]

    def _hooks(
        self, circuit: Collection[Head], layers: Iterable[int], rows: list[int] | slice
    ) -> list[Hook]:
        def hook_of(layer: int) -> Hook:
            def swap(z: Tensor, hook: Any) -> Tensor:
                return self._swapped(z, circuit, layer, rows)

            return f"blocks.{layer}.attn.hook_z", swap

        return [hook_of(layer) for layer in layers]

    def _swapped(
        self, z: Tensor, circuit: Collection[Head], layer: int, rows: list[int] | slice
    ) -> Tensor:
        """What the heads of a layer put out, with those outside put to something else."""
        instead, z = self._instead[layer], z.clone()
        out = [head for head in range(instead.shape[2]) if (layer, head) not in circuit]
        # one row: the same for all strings
        z[:, :, out] = (instead[rows] if len(instead) > 1 else instead)[:, :, out]
        return z


@final
class Circuits:
    """The circuits of heads of a case; each is run once, however often it is asked about.

    Examples:
        >>> from tl_dyck.judge import make_case
        >>> circuits = Circuits(make_case("uniform", 0)[0])
        >>> circuits.areas(circuits.nested(circuits.heads)).exact_cpr > 0
        True

    Args:
        case: of one model; all its strings are of `Case.length` brackets.
        zeros: whether heads outside of a circuit put out zeros, and not what they do on the other
            string.

    Attributes:
        heads: all of the model, by layer.
    """

    def __init__(self, case: Case, *, zeros: bool = False) -> None:
        cfg, language = case.model.cfg, case.task.language
        self.heads: list[Head] = [(i, j) for i in range(cfg.n_layers) for j in range(cfg.n_heads)]
        self._world = Enumeration(case.model, language, case.length, case.task.distribution)
        place = {tuple(row): at for at, row in enumerate(self._world.tokens.tolist())}
        self._seen = [place[tuple(row)] for row in case.tokens.tolist()]
        other = Replay(case.model, exchange_types(language, self._world.tokens)).z
        if zeros:
            other = [torch.zeros_like(z) for z in other]
        self._outside = Outside(case.model, self._world.tokens, other)
        self._outcomes: dict[Circuit, CircuitEffect] = {}
        ends = (self._outside.logits(each) for each in (frozenset(), frozenset(self.heads)))
        self._ends = [self._differences(logits) for logits in ends]

    def outcome(self, circuit: Collection[Head]) -> CircuitEffect:
        """What the model does if all heads outside a circuit put out what they should not."""
        key = frozenset(circuit)
        if key not in self._outcomes:
            logits = self._outside.logits(key)
            low, high = self._ends
            seen, every = (
                # f(C): 0 with no head inside, 1 with all
                (m - none) / (all_ - none)
                for m, none, all_ in zip(self._differences(logits), low, high, strict=True)
            )
            wrong = margins(logits, self._world.right) <= TIE
            self._outcomes[key] = CircuitEffect(
                faithfulness=seen,
                exact_faithfulness=every,
                kept=1 - self._world.share(wrong),
                sound=not bool((wrong & self._world.intact).any()),
            )
        return self._outcomes[key]

    def carry(self) -> dict[Head, float]:
        """Of each head, the exact share of answers lost if it alone is outside; 0 if none breaks.

        Where it is not 0, the answer to "carries" is yes, or with zeros that to "needed".
        """
        whole = self.outcome(self.heads).kept
        without = {head: self.outcome({*self.heads} - {head}) for head in self.heads}
        return {head: 0.0 if found.sound else whole - found.kept for head, found in without.items()}

    def nested(self, order: Sequence[Head]) -> list[Circuit]:
        """The first heads of an order, from none to all."""
        return [frozenset(order[:size]) for size in range(len(order) + 1)]

    def greedy(self, worth: Callable[[CircuitEffect], float]) -> list[Circuit]:
        """From none to all, each time with the head that makes the next circuit worth most."""
        found: list[Circuit] = [frozenset()]
        while len(found) <= len(self.heads):
            larger = [found[-1] | {head} for head in self.heads if head not in found[-1]]
            found.append(max(larger, key=lambda circuit: worth(self.outcome(circuit))))
        return found

    def areas(self, circuits: Sequence[Collection[Head]]) -> Areas:
        """What MIB says of a circuit for each size, and what is true of them.

        Args:
            circuits: one for each number of heads, from none to all; `nested`, or any.
        """
        outcomes = [self.outcome(circuit) for circuit in circuits]
        seen = np.array([outcome.faithfulness for outcome in outcomes])
        every = np.array([outcome.exact_faithfulness for outcome in outcomes])
        carries = np.array([effect != 0 for effect in self.carry().values()])
        early = [sum(head in circuit for circuit in circuits) for head in self.heads]
        return Areas(
            cpr=_area(seen),
            cmd=_area(np.abs(1 - seen)),
            exact_cpr=_area(every),
            exact_cmd=_area(np.abs(1 - every)),
            kept=_area(np.array([outcome.kept for outcome in outcomes])),
            sound=float(np.mean([outcome.sound for outcome in outcomes])),
            found=auroc(carries, np.array(early, dtype=float)),
        )

    def _differences(self, logits: Tensor) -> tuple[float, float]:
        """Mean differences, on the strings that are seen and on every prefix."""
        found = difference(self._world.language, logits, self._world.right)
        asked = self._world.right[self._seen] >= 0
        return float(found[self._seen].sum() / asked.sum()), self._world.share(found)


def _area(heights: np.ndarray) -> float:
    """By trapezoids, over [0, 1]."""
    # n intervals of width 1/n: the mean of their mean heights
    return float((heights[1:] + heights[:-1]).mean() / 2)
