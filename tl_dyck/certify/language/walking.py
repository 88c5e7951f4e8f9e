"""Prefixes judged one by one: every one while they are few, then drawn ones.

With positions or several layers a prediction does not follow from how often each symbol occurs.
What is left is to run the model itself, as far as that is feasible. A claim that holds on every
prefix that was run is proved for the logits as this machine computes them, not for the weights as
real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.language.asked import Asked, Tokens
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.certify.language.tally import Tally
from tl_dyck.language.dyck import MAX_ENUMERATED_TOKENS

_AT_ONCE = 1024
_DRAWN = 2048
"""Prefixes drawn where not all can be run."""


def walk(
    asked: Asked,
    lengths: Sequence[int],
    most: int,
    deadline: Deadline,
    told: Callable[[float], None],
) -> tuple[Tally, set[int], str]:
    """Run the models on all prefixes of the lengths, the shortest first, while they are few.

    Args:
        asked: of models that are run.
        lengths: of the prefixes, ascending.
        most: how many prefixes may be run in all; of the lengths beyond that some are drawn.
        deadline: when to stop.
        told: is told the share of the work done.

    Returns:
        The tally, the lengths that were gone through, and why the others were not.
    """
    language = asked.profiles.language
    tally, done, left = Tally.empty(lengths[-1], asked.profiles.deepest), set[int](), most
    reason = ""
    try:
        for length in lengths:
            number = language.count(length, "prefix")
            left -= number
            if left < 0 or number * length > MAX_ENUMERATED_TOKENS:
                reason = f"too many prefixes to run: those of length {length} and others were not"
                break
            strings = language.enumerate(length, "prefix").numpy()
            for start in range(0, len(strings), _AT_ONCE):
                deadline.check()
                for group in asked.judged(strings[start : start + _AT_ONCE]):
                    where = np.full(len(group.margin), length)
                    tally.take(
                        group.depth, where, group.margin, group.error, group.weigh, group.found
                    )
            done.add(length)
            told(1 - left / max(most, 1))
        seek(asked, [n for n in lengths if n not in done], tally, deadline)
    except OutOfTime:
        pass
    told(1.0)
    return tally, done, reason


def seek(asked: Asked, lengths: Sequence[int], tally: Tally, deadline: Deadline) -> None:
    """Look for wrong prefixes among drawn ones; nothing is counted.

    Raises:
        OutOfTime: the deadline has passed; what has been found is in the tally.
    """
    for strings in _draws(asked.profiles, [n for n in lengths if n > 0]):
        for group in asked.judged(strings):
            for index in np.flatnonzero(group.wrong).tolist():
                tally.see_wrong(group.found(index))
            deadline.check()


def _draws(profiles: Profiles, lengths: Sequence[int]) -> Iterator[Tokens]:
    """Prefixes of some of the lengths, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    places = np.linspace(0, len(lengths) - 1, 16).astype(int).tolist() if lengths else []
    chosen = sorted({lengths[place] for place in places})
    for length in chosen:
        n = _DRAWN // len(chosen)
        drawn = profiles.distribution.sample(n, length, mode="prefix", generator=generator)
        yield drawn.numpy()
