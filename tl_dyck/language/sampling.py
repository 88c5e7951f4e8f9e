"""Drawing strings from D(q, k, D) without rejection, and the exact tables that it takes.

A string is a walk over depths plus a type for each matched pair, and the two are independent:
opening at depth d has probability o(d) whatever the types. So `open_probability` gives the exact
probability of every step of the walk, conditional on how the string must end, `draw_opens` draws
walks, and `add_types` turns walks into tokens.

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

# How a string of given length must end: anywhere, at depth 0, or with a close.
End = Literal["anywhere", "complete", "close"]

# Tokens drawn at a time: the temporaries of that many stay in a core's cache.
_BLOCK = 1 << 17
# Greatest number of cells (see `_cells`) for the walk in pieces: one bit each of an unsigned byte.
_MOST_CELLS = 8
# Strings up to this length are walked in one piece.
_ONE_PIECE = 64

Floats = NDArray[np.float64]


def free_open_probability(q: float, max_depth: int, deepest: int) -> Floats:
    """o(d) for d = 0..deepest: the probability of an open at depth d.

    That is q, but 1 at depth 0 and 0 at depth D.
    """
    opens = np.full(deepest + 1, q)
    opens[0] = 1.0
    if deepest == max_depth:
        opens[-1] = 0.0
    return opens


def log_completion(q: float, max_depth: int, length: int, end: End = "complete") -> Floats:
    """Log of B[r, d], the probability of ending as it must, r tokens before the end, at depth d.

    ``B[r, d] = o(d) B[r-1, d+1] + (1 - o(d)) B[r-1, d-1]``, from ``B[0, d] = [d = 0]`` for
    "complete" and from ``B[1, d] = 1 - o(d)`` for "close". In logs, as for q near 1 and a large D
    it leaves the range of float64.

    Returns:
        Shape ``[length + 1, min(D, length) + 1]``, -inf where it cannot end so. Exact for every
        depth that a string can have reached by then, ``d <= length - r``; do not change it, it is
        shared.
    """
    return _log_completion(q, max_depth, length, end)


def open_probability(q: float, max_depth: int, length: int, end: End) -> Floats:
    """Probability that the next token is an open, r tokens before the end and at depth d.

    It is given how the string ends.

    Returns:
        Shape ``[length + 1, min(D, length) + 1]``; 0 where no right end can be reached, and in row
        0, where no token follows. Rows "anywhere" are all `free_open_probability`. Do not change
        it, it is shared.
    """
    return _open_probability(q, max_depth, length, end)


# Not many are kept: for large D and length one may take hundreds of megabytes.
@lru_cache(maxsize=8)
def _log_completion(q: float, max_depth: int, length: int, end: End) -> Floats:
    deepest = min(max_depth, length)
    log_open, log_close = _log_steps(q, max_depth, deepest)
    table = np.full(
        (length + 1, deepest + 3), -np.inf
    )  # one column more on either side, for d - 1 and d + 1
    if end == "complete":
        table[0, 1] = 0.0
        known = 0
    else:
        table[0, 1:-1] = 0.0
        table[1:2, 1:-1] = log_close
        known = 1
    for r in range(known + 1, length + 1):
        np.logaddexp(log_open + table[r - 1, 2:], log_close + table[r - 1, :-2], out=table[r, 1:-1])
    return table[:, 1:-1]


@lru_cache(maxsize=8)
def _open_probability(q: float, max_depth: int, length: int, end: End) -> Floats:
    deepest = min(max_depth, length)
    if end == "anywhere":
        table = np.tile(free_open_probability(q, max_depth, deepest), (length + 1, 1))
        table[0] = 0.0
        return table
    log_table = log_completion(q, max_depth, length, end)
    log_open, _ = _log_steps(q, max_depth, deepest)
    log_above = np.full_like(log_table, -np.inf)
    log_above[1:, :-1] = log_table[:-1, 1:]
    if end == "close":
        log_above[1] = -np.inf
    possible = np.isfinite(log_table)
    table = np.zeros_like(log_table)
    table[possible] = np.exp((log_open + log_above)[possible] - log_table[possible])
    return np.minimum(table, 1.0)


def _log_steps(q: float, max_depth: int, deepest: int) -> tuple[Floats, Floats]:
    """Log o(d) and log (1 - o(d)); log1p keeps 1 - q exact for small q."""
    opens = free_open_probability(q, max_depth, deepest)
    with np.errstate(divide="ignore"):
        return np.log(opens), np.log1p(-opens)


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
    steps = (
        length if length <= _ONE_PIECE else 2 * math.ceil(math.sqrt(length) / 2)
    )  # even, so pieces begin alike
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
    tokens = 1 - opens
    if n_types == 1 or opens.size == 0:
        return tokens
    level = np.cumsum(2 * opens.view(np.int8) - 1, axis=0, dtype=np.min_scalar_type(-length - 1))
    level -= opens.view(np.int8)  # from 0
    levels = int(level.max()) + 1

    power_of_two = n_types & (n_types - 1) == 0
    bits = ((n_types - 1) * (1 if power_of_two else (length + 1) // 2)).bit_length()
    accumulate = np.bitwise_xor.accumulate if power_of_two else np.add.accumulate
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
        types %= word(n_types)
    return 2 * types.astype(np.uint8 if n_types <= 128 else np.int64) + tokens


def choice_nats(first: Floats, second: Floats) -> Floats:
    """``a log((a + b) / a) + b log((a + b) / b)``.

    Nats of a choice between two masses, times their sum.
    """
    total = first + second
    safe_first, safe_second = np.where(first > 0, first, 1.0), np.where(second > 0, second, 1.0)
    both = np.where(total > 0, total, 1.0)
    nats: Floats = first * (np.log(both) - np.log(safe_first)) + second * (
        np.log(both) - np.log(safe_second)
    )
    return nats
