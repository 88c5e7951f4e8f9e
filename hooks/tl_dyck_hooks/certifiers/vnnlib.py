"""VNN-LIB properties for the network that `tl_dyck_hooks.certifiers.onnx` writes.

Polarity, as in VNN-COMP: the file describes a *counterexample*. Its constraints on the inputs X are
the box of embeddings, its constraint on the outputs Y is "some other logit is at least the
target's". A verifier that answers ``unsat`` has certified the property; ``sat`` means unsafe, with
the X and Y it found. A box holds more than the embeddings of tokens, so ``sat`` need not belong to
a string.

X_i are the embeddings ``[1, pos, d_model]`` in row-major order, Y_j the logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.rnn.config import RNNInputError
from tl_dyck.rnn.machine import TwoLayerRNN


def embedding_box(
    rnn: TwoLayerRNN, allowed: Sequence[Sequence[int]]
) -> tuple[Float[Tensor, "pos d_model"], Float[Tensor, "pos d_model"]]:
    """The smallest box around the embeddings of a length-preserving set of strings, by position.

    The states that layer 1 can be in are followed along the string, so depths are only those that
    occur. `allowed` has, for each position, the tokens that may stand there.

    Returns:
        (lower, upper).
    """
    states, lower, upper = torch.tensor([rnn.start_state]), [], []
    for tokens in allowed:
        pairs = torch.cartesian_prod(states, torch.tensor(sorted(set(tokens))))
        after = rnn.next_state(pairs[:, 0].to(rnn.device), pairs[:, 1].to(rnn.device))
        r = rnn.embed(pairs[:, 1].to(rnn.device), after)
        lower.append(r.amin(0))
        upper.append(r.amax(0))
        states = after.cpu().unique()
    return torch.stack(lower), torch.stack(upper)


def vnnlib_property(
    lower: Float[Tensor, "pos d_model"],
    upper: Float[Tensor, "pos d_model"],
    target: int,
    d_vocab_out: int,
) -> str:
    """The text of the property "on this box, the target's logit exceeds all others".

    It is negated as VNN-LIB wants it.

    Args:
        lower: lower ends of the embeddings; rounded *outwards* to float32, the type of the
            network's input, and written so that they read back exactly, so the box in the file
            contains the box that was given.
        upper: upper ends, likewise.
        target: the class or token whose logit must be the largest.
        d_vocab_out: number of logits.

    Raises:
        RNNInputError: a bound that float32 does not have.
    """
    least = _outwards(lower, -torch.inf).flatten().tolist()
    largest = _outwards(upper, torch.inf).flatten().tolist()
    if not math.isfinite(min(least)) or not math.isfinite(max(largest)):
        raise RNNInputError("a bound is too large for torch.float32.")
    lines = [
        f"; some other logit is at least Y_{target}, for embeddings in a box: sat means unsafe"
    ]
    lines += [f"(declare-const X_{i} Real)" for i in range(len(least))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(d_vocab_out)]
    for i, (low, high) in enumerate(zip(least, largest, strict=True)):
        # exact decimals without an exponent, which not every reader knows
        lines += [f"(assert (>= X_{i} {Decimal(low):f}))", f"(assert (<= X_{i} {Decimal(high):f}))"]
    others = " ".join(f"(and (>= Y_{j} Y_{target}))" for j in range(d_vocab_out) if j != target)
    lines.append(f"(assert (or {others}))")
    return "\n".join(lines) + "\n"


def _outwards(values: Tensor, towards: float) -> Tensor:
    """The nearest values of float32 that lie on the side of `towards`, as float64."""
    rounded, wanted = values.float(), values.double()
    beyond = torch.nextafter(rounded, torch.full_like(rounded, towards))
    inside = rounded.double() > wanted if towards < 0 else rounded.double() < wanted
    return torch.where(inside, beyond, rounded).double()
