"""Drawing strings from D(q, k, D) without rejection.

A string is a walk over depths plus a type for each matched pair, and the two are independent:
opening at depth d has probability o(d) whatever the types. So `open_probability` gives the exact
probability of every step of the walk, conditional on how the string must end, and `draw_tokens`
draws walks and then types.

Nothing loops over strings, nor over positions longer than need be: long strings are cut into
pieces, each piece is walked from every depth it could begin at, all pieces at once, and then the
walks that meet are joined. Everything is in small unsigned integers, in numpy, which on a CPU is a
few times faster here than torch.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tl_dyck.language.chain import Floats, depth_chain, free_open_probability

# How a string of given length must end: anywhere, at depth 0, or with a close.
End = Literal["anywhere", "complete", "close"]

# Tokens drawn at a time: the temporaries of that many stay in a core's cache.
_BLOCK = 1 << 17
# Greatest number of cells (see `_cells`) for the walk in pieces: one bit each of an unsigned byte.
_MOST_CELLS = 8
# Strings up to this length are walked in one piece.
_ONE_PIECE = 64


# Not many are kept: for large D and length one may take hundreds of megabytes.
@lru_cache(maxsize=8)
def open_probability(q: float, max_depth: int, length: int, end: End) -> Floats:
    """Probability that the next token is an open, r tokens before the end and at depth d.

    It is given how the string ends.

    Returns:
        Shape ``[length + 1, min(D, length) + 1]``; 0 where no right end can be reached, and in row
        0, where no token follows. Rows "anywhere" are all `free_open_probability`. Do not change
        it, it is shared.
    """
    deepest = min(max_depth, length)
    table = np.zeros((length + 1, deepest + 1))
    if end == "anywhere":
        table[1:] = free_open_probability(q, max_depth, deepest)
        return table
    chance = depth_chain(q, max_depth, length, complete=end == "complete").chance(0)
    if end == "complete":
        table = chance
    else:  # the last token is given, a closing bracket
        table[1:] = chance[:-1]
    return np.minimum(table, 1.0)


# --- drawing --------------------------------------------------------------------------------------


def draw_tokens(
    n: int, length: int, *, q: float, n_types: int, max_depth: int, end: End, seed: int
) -> NDArray[np.int64]:
    """Draw n strings of the given length, conditional on how they end.

    That some such string exists is not checked.

    Returns:
        Tokens, shape ``[n, length]``, no BOS.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    tokens = np.empty((n, length), dtype=np.int64)
    # cells 0 to D // 2: two depths of one parity each
    in_pieces = min(max_depth, length) // 2 < _MOST_CELLS
    # One position at a time pays for wide blocks only.
    at_once = max(1, (_BLOCK if in_pieces else 32 * _BLOCK) // max(length, 1))
    for first in range(0, n if length else 0, at_once):
        m = min(at_once, n - first)
        if in_pieces:
            cells = _cells(q, max_depth, length, end)
            opens = _walk_in_pieces(cells, rng.random((*cells.shape[:2], m)))[:length]
        else:
            opens = _walk_by_position(
                open_probability(q, max_depth, length, end), rng.random((length, m))
            )
        tokens[first : first + m] = _add_types(opens, n_types, rng).T
    return tokens


def _walk_by_position(table: Floats, draws: Floats) -> NDArray[np.uint8]:
    """Walk one position at a time, whatever D is; ``[length, n]``, 1 for an open.

    Each token takes one uniform number.
    """
    length, n = draws.shape
    depth = np.zeros(n, dtype=np.intp)
    opens = np.empty((length, n), dtype=bool)
    for position in range(length):
        # then twice the truth value less 1: up by one if it opens, down by one if not
        np.less(draws[position], table[length - position].take(depth), out=opens[position])
        depth += opens[position]
        depth += opens[position]
        depth -= 1
    return opens.view(np.uint8)


@lru_cache(maxsize=64)
def _cells(q: float, max_depth: int, length: int, end: End) -> Floats:
    """`open_probability` by piece, step within the piece, and cell: ``[step, piece, cell]``.

    Before an even position the depth is even, before an odd one odd, so only half the depths are
    possible: cell c stands for depth 2c or 2c + 1. Beyond the end of the string the probability is
    0, which does no harm.
    """
    table = open_probability(q, max_depth, length, end)[:0:-1]  # row i: position i
    # even, so pieces begin alike
    # √length pieces of √length steps: walking and joining take about as long
    steps = length if length <= _ONE_PIECE else 2 * math.ceil(math.sqrt(length) / 2)
    # rounded up
    pieces = -(-length // steps)
    cells = np.zeros((pieces * steps, table.shape[1] // 2 + 1))
    for parity in (0, 1):
        half = table[parity::2, parity::2]
        cells[parity:length:2, : half.shape[1]] = half
    return np.ascontiguousarray(cells.reshape(pieces, steps, -1).swapaxes(0, 1))


def _walk_in_pieces(cells: Floats, draws: Floats) -> NDArray[np.uint8]:
    """Walk all pieces at once, each from all depths it may begin at, and join them.

    One uniform number decides a position, whatever the depth: bit c of its mask says whether it
    opens in cell c.

    Args:
        cells: see `_cells`, ``[step, piece, cell]``.
        draws: uniform on [0, 1), ``[step, piece, n]``.

    Returns:
        Shape ``[steps * pieces, n]``, 1 for an open.
    """
    steps, pieces, n_cells = cells.shape
    n = draws.shape[2]
    mask = np.zeros(draws.shape, dtype=np.uint8)
    for c in range(n_cells):
        mask |= (draws < cells[:, :, c, None]).view(np.uint8) << np.uint8(c)

    # one piece begins at depth 0; of several it is seen later where each begins
    starts = n_cells if pieces > 1 else 1
    cell = np.empty((starts, pieces, n), dtype=np.uint8)
    cell[:] = np.arange(starts, dtype=np.uint8)[:, None, None]
    opens = np.empty((steps, starts, pieces, n), dtype=np.uint8)
    for step in range(steps):
        np.right_shift(mask[step], cell, out=opens[step])
        opens[step] &= 1
        # Depth 2c goes to 2c + 1 or 2c - 1, cells c and c - 1; depth 2c + 1 to 2c + 2 or 2c, cells
        # c + 1 and c. A start that is out of reach may wrap around or leave the cells; nobody
        # follows it.
        cell += opens[step]
        if step % 2 == 0:
            cell -= 1
    if pieces == 1:
        return opens[:, 0, 0]

    begin = np.zeros((pieces, n), dtype=np.intp)
    columns = np.arange(n)
    for piece in range(1, pieces):
        # where the piece before ended, if it began where it did
        begin[piece] = cell[begin[piece - 1], piece - 1, columns]
    begun = begin.astype(np.uint8)
    joined: NDArray[np.uint8] = np.zeros((steps, pieces, n), dtype=np.uint8)
    for start in range(starts):
        joined |= opens[:, start] & (begun == start)
    walks: NDArray[np.uint8] = joined.swapaxes(0, 1).reshape(pieces * steps, n)
    return walks


def _add_types(opens: NDArray[np.uint8], n_types: int, rng: np.random.Generator) -> NDArray[Any]:
    """Tokens of walks, ``[length, n]``: a uniform type for each open; a close has that of its open.

    Every open adds a random digit, modulo k, to a running sum of its own level (the depth on the
    bracket's inner side). The sum *is* its type: uniform and independent of all before, because the
    digit is, and still there when its close comes, because no open of that level lies between. The
    sums of many levels share one word; for k a power of two they are added without carry (exclusive
    or), otherwise each has room for the sum of all its digits.
    """
    length = opens.shape[0]
    # opening brackets are even, closing ones odd
    tokens = 1 - opens
    if n_types == 1 or opens.size == 0:
        return tokens
    level = np.cumsum(2 * opens.view(np.int8) - 1, axis=0, dtype=np.min_scalar_type(-length - 1))
    level -= opens.view(np.int8)  # from 0
    levels = int(level.max()) + 1

    power_of_two = n_types & (n_types - 1) == 0
    # room for the largest sum: every second bracket at most opens a level, each digit below k
    bits = ((n_types - 1) * (1 if power_of_two else (length + 1) // 2)).bit_length()
    accumulate = np.bitwise_xor.accumulate if power_of_two else np.add.accumulate
    # 64 bits: the widest word that numpy adds
    per_word = min(levels, 64 // bits)
    word = next(
        kind
        for kind in (np.uint8, np.uint16, np.uint32, np.uint64)
        if bits * per_word <= np.iinfo(kind).bits
    )
    digits = rng.integers(
        n_types, size=opens.shape, dtype=np.uint8 if n_types <= 256 else np.uint64
    )
    digits *= opens
    types = np.zeros(opens.shape, dtype=word)
    for first in range(0, levels, per_word):
        shift = (level - first).astype(word)  # levels below `first` wrap around to large numbers
        inside = shift < per_word
        shift *= inside
        shift *= word(bits)
        sums = digits.astype(word)
        sums *= inside
        sums <<= shift
        accumulate(sums, axis=0, out=sums)
        sums >>= shift
        sums &= word((1 << bits) - 1)
        sums *= inside
        types += sums
    if not power_of_two:
        # sums were not reduced on the way, for their parts stand side by side in a word
        types %= word(n_types)
    # tokens up to 2 · 127 + 1 fit a byte
    return 2 * types.astype(np.uint8 if n_types <= 128 else np.int64) + tokens
