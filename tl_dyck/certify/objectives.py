"""What is asked for: functions of the logits, whose least value over a space a certifier bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray


@final
@dataclass(frozen=True)
class Objectives:
    """K functions logit[plus] - logit[minus] + offset of the logits.

    What is asked for is their least value over a space.

    Attributes:
        plus: [K] indices of logits; -1 leaves the term out.
        minus: [K].
        offsets: [K].
    """

    plus: NDArray[np.int64]
    minus: NDArray[np.int64]
    offsets: NDArray[np.float64]

    @classmethod
    def margins(cls, target: int, d_vocab_out: int) -> Objectives:
        """logit[target] - logit[c] for every other c; their least value is the margin."""
        others = np.delete(np.arange(d_vocab_out), target)
        return cls(np.full_like(others, target), others, np.zeros(len(others)))

    @classmethod
    def wanted(cls, objectives: Objectives | None, target: int, d_vocab_out: int) -> Objectives:
        """Objectives that a certifier was asked for: the given ones, else the target's margins."""
        return cls.margins(target, d_vocab_out) if objectives is None else objectives

    @classmethod
    def changes(cls, logits: NDArray[np.float64]) -> Objectives:
        """±(logit[c] - logits[c]) for all c; minus the least is the largest change of a logit."""
        c, none = np.arange(len(logits)), np.full(len(logits), -1)
        return cls(
            np.concatenate([c, none]), np.concatenate([none, c]), np.concatenate([-logits, logits])
        )

    @classmethod
    def allowed(cls, may: NDArray[np.bool_], threshold: float) -> Objectives:
        """logit[c] - threshold for each c that `may` follow, and threshold - logit[c] for others.

        Args:
            may: [symbols].
            threshold: above which a logit says that its symbol may follow.
        """
        c = np.arange(len(may))
        offsets = np.where(may, -threshold, threshold)
        return cls(np.where(may, c, -1), np.where(may, -1, c), offsets)

    def take(self, which: NDArray[np.int64]) -> Objectives:
        """Some of them, in the order given."""
        return Objectives(self.plus[which], self.minus[which], self.offsets[which])

    def renumbered(self) -> tuple[NDArray[np.int64], Objectives]:
        """The indices of the logits that occur, sorted, and the functions of these alone."""
        both = np.stack([self.plus, self.minus])
        used, index = np.unique(both[both >= 0], return_inverse=True)
        both[both >= 0] = index
        return used, Objectives(both[0], both[1], self.offsets)

    def terms(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the terms added and subtracted, [..., K] each, given logits, [..., logits].

        The one added is [..., 1] where it is the same for all, as a target's is.
        """
        plus, minus = self.plus, self.minus
        if len(plus) > 1 and (plus == plus[0]).all() and (minus != minus[0]).any():
            plus = plus[:1]
        added, subtracted = (
            values[..., index]
            if (index >= 0).all()
            else np.where(index >= 0, values[..., index], 0.0)
            for index in (plus, minus)
        )
        return added, subtracted

    def values(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The functions of some logits, ``[..., logits]`` to ``[..., K]``, rounded."""
        plus, minus = self.terms(logits)
        found: NDArray[np.float64] = plus - minus
        return found + self.offsets if self.offsets.any() else found

    def least(self, logits: NDArray[np.float64]) -> float:
        """The least objective for some logits, rounded; the margin, for `margins`."""
        return float(self.values(logits).min(initial=np.inf))
