"""Answers about models of any automaton's strings, computed on every string.

*Needed*, *carries* and *pattern* are defined by what is right alone: does the model still say it?

Knows: which strings are run, and that each beginning of one counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.judge.asked import MOST, choices, listed, partner_rows, right_answers
from tl_dyck.judge.facts import TIE, World
from tl_dyck.judge.protocol import JudgeError
from tl_dyck.reading.inputs import hides_bos
from tl_dyck.tasks import AutomatonTask


@final
class EveryString(World):
    """A model on every string of an automaton, up to a length; each beginning counts once.

    The partner of a string is another one of the same length, drawn always alike among those that
    are asked for something else at the end.

    Args:
        model: causal, float64.
        task: the automaton.
        length: in symbols; of a task with places, that of its strings.
        threshold: if given, what is asked for is which symbols may follow: those with logits above
            it, and no others.

    Raises:
        JudgeError: there are too many strings, or nothing is asked of them.
    """

    def __init__(
        self, model: Any, task: AutomatonTask, length: int, threshold: float | None = None
    ) -> None:
        rows = listed(task, length)
        if rows is None:
            raise JudgeError(f"{task.name} has more than {MOST:,} strings of {length} symbols")
        self.model, self.threshold, self._has_places = model, threshold, task.places is not None
        self.task, self.tokens = task, torch.from_numpy(rows)
        self.right = right_answers(task, self.tokens)
        self.choices = choices(task, length)
        self.there = self.tokens != task.language.bos_token
        self.there[:, 0] = True
        self.there[:, : hides_bos(model)] = False
        self.asked = (self.right >= 0) & self.there
        if threshold is not None:
            self._may = task.allowed(self.tokens)
            self.asked = self._may.any(-1) & self.there
            if task.asked is not None:
                places = torch.zeros(self.tokens.shape[1], dtype=torch.bool)
                places[[place + 1 for place in task.asked]] = True
                self.asked &= places
        self.right[~self.asked] = -1
        if not self.asked.any():
            raise JudgeError(f"nothing is asked of {task.name}'s strings of {length} symbols")
        self._weight = torch.from_numpy(each_once(self.tokens.numpy()))
        self.partners = self.tokens[partner_rows(self.tokens, self.right)]
        self.look()

    def draw(self, n: int, generator: torch.Generator) -> Int[Tensor, "n pos"]:
        """Some of the strings, each as likely."""
        return self.tokens[torch.randint(len(self.tokens), (n,), generator=generator)]

    def margins(self, logits: Float[Tensor, "n pos d_vocab"]) -> Float[Tensor, "n pos"]:
        """How clearly the model is right on `tokens`; +∞ where nothing is asked for."""
        if self.threshold is None:
            return super().margins(logits)
        above = logits[..., : self._may.shape[-1]] - self.threshold
        least = torch.where(self._may, above, -above).amin(-1)
        return torch.where(self.asked, least, torch.inf)

    def mean(self, found: Float[Tensor, "n pos *rest"]) -> Float[Tensor, "#pos *rest"]:
        """The mean over all beginnings; of a task with places, at each place by itself."""
        if not self._has_places:
            return super().mean(found)
        weight = self._weight  # all its strings are of one length
        mean = torch.einsum("np,np...->p...", weight, found)
        return mean / weight.sum(0).view(-1, *(1,) * (found.ndim - 2))


def shortest(marked: Bool[Tensor, "n pos"]) -> tuple[int, int]:
    """Row and position of a shortest prefix that is marked."""
    places = marked.nonzero()
    row, end = places[places[:, 1].argmin()].tolist()
    return row, end


def largest(logits: Float[Tensor, " d_vocab"], names: Sequence[str]) -> str:
    """What the largest logit is of; of a tie all, with "or" between; a number if it has no name."""
    best = (logits > logits.max() - TIE).nonzero().flatten().tolist()
    return " or ".join(names[at] if at < len(names) else str(at) for at in best)


def each_once(tokens: IntArray) -> Array:
    """[n, pos] weights by which each distinct beginning counts once."""
    weight = np.empty(tokens.shape)
    for at in range(tokens.shape[1]):
        _, which, number = np.unique(
            tokens[:, : at + 1], axis=0, return_inverse=True, return_counts=True
        )
        weight[:, at] = 1 / number[which.ravel()]
    return weight
