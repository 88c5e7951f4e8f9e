"""Strings of different lengths laid end to end, so that nothing is computed for filling.

In a batch of strings of mixed lengths, each filled up to the longest, half of all rows are filling.
Here several strings share a row of fixed length, and attention is kept within each string by a
mask. The rows of a batch are then almost full, fewer, and every layer works on them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

#: The target of slots at which nothing is to be predicted.
IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """What some models of a stack read in a step, or all of them in many: rows of slots.

    Attributes:
        tokens: ``[model, row, slot]``; BOS where nothing is.
        depth: of the brackets, as the embedding wants it, ``[model, row, slot]``.
        first: the slot at which a slot's string begins, ``[model, row, slot]``; where nothing is,
            the slot itself.
        targets: the next token, ``[model, row, slot]``, `IGNORED` where nothing is to be predicted.
        pairs: slots, counted through a model's rows, whose logits the contrastive regularisation
            compares, ``[2, model, pair]``; two zeros are no pair; None without the regularisation.
        members: which models: some that are neighbours, or all.
    """

    tokens: Int[Tensor, "model row slot"]
    depth: Int[Tensor, "model row slot"]
    first: Int[Tensor, "model row slot"]
    targets: Int[Tensor, "model row slot"]
    pairs: Int[Tensor, "two model pair"] | None = None
    members: slice = field(default_factory=partial(slice, None))

    def each(self, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """The tensors by name, but for `pairs`, each changed in the same way."""
        return {
            name: change(getattr(self, name)) for name in ("tokens", "depth", "first", "targets")
        }

    def to(self, device: str | torch.device | None) -> Batch:
        """The same elsewhere."""
        pairs = None if self.pairs is None else self.pairs.to(device)
        return replace(self, **self.each(lambda values: values.to(device)), pairs=pairs)

    def part(self, groups: slice, rows: int, members: slice) -> Batch:
        """The first rows of some models."""
        pairs = None if self.pairs is None else self.pairs[:, groups]
        kept = self.each(lambda values: values[groups, :rows])
        return replace(self, **kept, pairs=pairs, members=members)


def place(lengths: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign strings to rows so that few rows are needed.

    The longest is first; each goes into the first row with room for it.

    Args:
        lengths: at most `width`, ``[group, string]``; groups do not share rows.
        width: of a row.

    Returns:
        The first slot of each string, counted through all rows of its group, and the number of rows
        of each group.
    """
    groups, count = lengths.shape
    room = np.full((groups, count), width)
    group = np.arange(groups)
    starts = np.empty_like(lengths)
    # first fit, decreasing: about 11/9 of the least number of rows, at worst
    order = np.argsort(-lengths, axis=1, kind="stable")
    for string in order.T:
        needed = lengths[group, string]
        # the first that has room; one always has, for there are as many rows as strings
        row = (room >= needed[:, None]).argmax(1)
        left = room[group, row]
        # strings of a row stand one behind the other, so the next begins where room begins
        starts[group, string] = row * width + width - left
        room[group, row] = left - needed
    return starts, (room < width).sum(1)


def pack(
    tokens: Int[Tensor, "group string pos"],
    lengths: Int[Tensor, "group string"],
    *,
    depth: Int[Tensor, "group string pos"],
    targets: Int[Tensor, "group string pos"],
    width: int,
    least: int = 1,
    grain: int = 1,
    filling: int,
) -> tuple[Batch, Int[Tensor, " group"], Int[Tensor, "group string pos"]]:
    """Lay the first `lengths` tokens of each string, with what belongs to them, into rows.

    Args:
        tokens: on the CPU, like the rest.
        lengths: between 1 and `width`.
        depth: see `Batch`.
        targets: likewise; `filling`, the token of slots where nothing is, stands for `IGNORED`.
        width: of a row.
        least: number of rows, used or not.
        grain: the number of rows is a multiple of it.
        filling: see `targets`.

    Returns:
        The rows; how many of them each group uses; and the slot of every token of every string in
        its group's rows, 0 beyond its end.
    """
    groups = len(tokens)
    starts, rows = (torch.from_numpy(array) for array in place(lengths.numpy(), width))
    # rows rounded up to the grain, in slots
    size = -(-max(least, int(rows.max())) // grain) * grain * width
    here = torch.arange(tokens.shape[-1])
    used = here < lengths[:, :, None]
    # 0 beyond a string's end; `used` keeps that from being written to
    slots = (starts[:, :, None] + here).masked_fill_(~used, 0)
    where = (slots + torch.arange(groups)[:, None, None] * size)[used]

    def laid(values: Tensor, default: Tensor) -> Tensor:
        out = default.expand(width).repeat(groups, size // width, 1)
        out.view(-1)[where] = values.expand_as(slots)[used]
        return out

    batch = Batch(
        tokens=laid(tokens, torch.tensor(filling)),
        depth=laid(depth, torch.tensor(0)),
        # a slot where nothing is begins at itself and sees itself: no softmax is empty
        first=laid(starts[:, :, None] % width, torch.arange(width)),
        targets=laid(targets.masked_fill(targets == filling, IGNORED), torch.tensor(IGNORED)),
    )
    return batch, rows, slots
