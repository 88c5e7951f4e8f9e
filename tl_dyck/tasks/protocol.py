"""What a task is: all that training, measuring and the command line ask of one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from tl_dyck.language import Language


@runtime_checkable
class Task(Protocol):
    """A language to learn: symbols, strings, their law, and what counts for the accuracy.

    `DyckTask` is one, and so is `AutomatonTask`, with which another language takes a few lines. A
    class of your own needs these members and no base class. It must be possible to pickle it, for
    workers. If it has a method `accuracy` besides, with the parameters of `counted_accuracy` and
    an `Accuracy` as its answer, models are measured by that.
    """

    @property
    def name(self) -> str:
        """What people call it; under this name it is registered."""

    @property
    def language(self) -> Language:
        """What a model reads: a `DyckLanguage`, or a `SymbolLanguage`, which has no stack."""

    @property
    def train_lengths(self) -> Sequence[int]:
        """The lengths, in symbols, that training strings can have."""

    @property
    def long_lengths(self) -> Sequence[int]:
        """Shortest and longest length of the strings that test length generalisation."""

    @property
    def entropy_floor(self) -> float:
        """The least cross-entropy, nats per token, on training strings; NaN if nobody knows."""

    def sample(
        self,
        n: int,
        *,
        long: bool = False,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> Int[Tensor, "n pos"]:
        """Draw strings, on the CPU: BOS, then symbols; shorter ones are filled up with BOS.

        Args:
            n: number of strings.
            long: of `long_lengths`, not of `train_lengths`.
            generator: source of randomness; all that is drawn depends on it alone.
            seed: of a generator of its own, instead.
        """

    def counted_positions(self, tokens: Int[Tensor, "n pos"]) -> Bool[Tensor, "n pos"]:
        """Which tokens of strings a model must predict right: those of which it can know."""

    def next_token_probs(
        self, tokens: Int[Tensor, "n pos"]
    ) -> Float64[Tensor, "n pos d_vocab"] | None:
        """The exact law of what follows each token of training strings; None if nobody knows.

        Rows after which no training string goes on are 0.
        """

    def to_dict(self) -> dict[str, Any]:
        """Everything that defines the task, as JSON values, its `name` among them."""


MEMBERS = tuple(name for name in dir(Task) if name[0] != "_")


def missing_members(item: Any) -> list[str]:
    """The members of `Task` that an object does not have; none is evaluated, for it may take time.

    A class lacks them all: only what it makes is a task.
    """
    absent = object()
    known = {name: inspect.getattr_static(item, name, absent) for name in MEMBERS}
    return [name for name in MEMBERS if isinstance(item, type) or known[name] is absent]


def is_task(item: Any) -> bool:
    """Whether an object is a `Task`."""
    return not missing_members(item)
