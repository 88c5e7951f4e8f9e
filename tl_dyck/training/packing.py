"""Strings of different lengths laid end to end, so that nothing is computed for filling.

In a batch of strings of mixed lengths, each filled up to the longest, half of all rows are filling.
Here several strings share a row of fixed length, and attention is kept within each string by a
mask. The rows of a batch are then almost full, fewer, and every layer works on them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

#: The target of slots at which nothing is to be predicted.
IGNORED = -100


@dataclass(frozen=True)
class Packed:
    """The batches of many groups, one for every step and seed, in rows of `width` slots.

    Attributes:
        tokens: ``[group, row, slot]``; BOS where nothing is.
        depth: of the brackets, as the embedding wants it, ``[group, row, slot]``.
        first: the slot at which a slot's string begins, ``[group, row, slot]``; where nothing is,
            the slot itself.
        targets: the next token, ``[group, row, slot]``, `IGNORED` where nothing is to be predicted.
        rows: number of rows in use, ``[group]``.
        slots: of every token of every string in its group's rows, ``[group, string, pos]``; 0
            beyond its end.
    """

    tokens: Int[Tensor, "group row slot"]
    depth: Int[Tensor, "group row slot"]
    first: Int[Tensor, "group row slot"]
    targets: Int[Tensor, "group row slot"]
    rows: Int[Tensor, " group"]
    slots: Int[Tensor, "group string pos"]

    def to(self, device: str | torch.device | None) -> Packed:
        """The same elsewhere, but for `rows`, which stay where they can be read at once."""
        moved = {name: value.to(device) for name, value in vars(self).items() if name != "rows"}
        return replace(self, **moved)


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
    order = np.argsort(-lengths, axis=1, kind="stable")
    for string in order.T:
        needed = lengths[group, string]
        row = (room >= needed[:, None]).argmax(1)
        left = room[group, row]
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
) -> Packed:
    """Lay the first `lengths` tokens of each string, with what belongs to them, into rows.

    Args:
        tokens: on the CPU, like the rest.
        lengths: between 1 and `width`.
        depth: see `Packed`.
        targets: see `Packed`; `filling` stands for `IGNORED`.
        width: of a row.
        least: number of rows, used or not.
        grain: the number of rows is a multiple of it.
        filling: the token of slots where nothing is.
    """
    groups = len(tokens)
    starts, rows = (torch.from_numpy(array) for array in place(lengths.numpy(), width))
    size = -(-max(least, int(rows.max())) // grain) * grain * width
    here = torch.arange(tokens.shape[-1])
    used = here < lengths[:, :, None]
    slots = (starts[:, :, None] + here).masked_fill_(~used, 0)
    where = (slots + torch.arange(groups)[:, None, None] * size)[used]

    def laid(values: Tensor, default: Tensor) -> Tensor:
        out = (
            default.repeat(groups, size // width, 1)
            if default.ndim
            else default.repeat(groups, size // width, width)
        )
        out.view(-1)[where] = values.expand_as(slots)[used]
        return out

    return Packed(
        tokens=laid(tokens, torch.tensor(filling)),
        depth=laid(depth, torch.tensor(0)),
        first=laid(starts[:, :, None] % width, torch.arange(width)),
        targets=laid(targets.masked_fill(targets == filling, IGNORED), torch.tensor(IGNORED)),
        rows=rows,
        slots=slots,
    )
