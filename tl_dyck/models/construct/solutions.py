"""Three ways to solve a bounded Dyck language exactly: uniform, balanced and stack attention.

How far floating-point numbers carry (measured, see docs/findings/performance.md, on
Dyck(2, 4) and Dyck(4, 6); largest error of a next-token probability, strings made for errors to add
up included; the right closing bracket is first always):

| construction                  | float64            | float32                                    |
|-------------------------------|--------------------|--------------------------------------------|
| uniform, layer 1 minimal      | 7e-16, n ≤ 524,288 | 4e-7, n ≤ 524,288 (Dyck(2, 4): 12,582,912) |
| uniform, layer 1 by attention | 8e-16, n ≤ 32,768  | 4e-7, n ≤ 32,768                           |
| balanced, spread 1.5          | 1e-15, n ≤ 524,288 | 6e-7, n ≤ 8,192 (Dyck(2, 4): 131,072)      |
| stack, gap 30                 | 1e-16, n ≤ 524,288 | 1e-9, n ≤ 524,288 (Dyck(2, 4): 8,388,608)  |

So n tokens are never what float32 fails on, but for `balanced`, where a pair cancels up to rounding
only: it fails once n times the machine epsilon is about 10 times the least relative weight of the
top of the stack (Dyck(4, 6): spread 2 at n = 32,000, spread 3 at 2,000), and `balanced` refuses to
be built from 1 time on. Depth costs precision in float32: the error of `uniform_attention` passes
1e-6 between D = 32 and D = 64 (k = 2, n = 2,048; 6e-6 at D = 256), still with the right bracket
first. In float64 it is 1e-14 at D = 256.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models.construct.first_layer import CountCoordinates, write_first_layer
from tl_dyck.models.construct.parts import (
    LN_C,
    Coordinates,
    States,
    empty_model,
    write_decoder,
    write_unembed,
)
from tl_dyck.models.construct.second_layer import StackCoordinates, write_second_layer
from tl_dyck.models.transformer import DyckTransformer


@checked
@torch.no_grad()
def uniform_attention(
    language: DyckLanguage,
    *,
    first_layer: str = "minimal",
    q: float = 0.5,
    n_ctx: int = 2048,
    ln_c: float = LN_C,
    dtype: torch.dtype = torch.float64,
    device: str | None = None,
) -> DyckTransformer:
    """Corollary 1: uniform attention, no positions, a start token, and exact probabilities.

    They are exact for the next token at any length.

    Attention weights are equal at every position, whatever the string: the pattern knows nothing of
    the task. Opening and closing brackets of a pair have opposite values, so what is left of the
    mean is the stack, times 1/n; LN_C takes the 1/n away (Eq. 6; with LayerNorm elsewhere this is
    where long strings fail), and the MLP reads the top.

    Args:
        language: Dyck(k, D).
        first_layer: "minimal" (an embedding of token and depth, Eq. 19, and one layer), or
            "attention" (token embeddings and two layers, the first of which computes the depth, by
            uniform attention too; its output depends on token and depth alone, so Assumption 1
            holds).
        q: probability of an opening bracket where both are possible.
        n_ctx: longest input, BOS included; no weight depends on it.
        ln_c: C of LN_C. With a larger one the model is exact for n ≤ √2 / C tokens only, but its
            Lipschitz constant shrinks, which `prune_to` needs.
        dtype: of weights and activations, see the table.
        device: None for TransformerLens' default.

    Returns:
        A `DyckTransformer` of Eq. 6 blocks with one head. Its logits are log-probabilities of
        D(q, k, D); what cannot follow has the logit −40.

    Raises:
        UnknownNameError: no such `first_layer`.
        ValueError: `q` is not strictly between 0 and 1, or `ln_c` is not positive.
    """
    DyckDistribution(language, q)  # refuses a q for which some prefixes never occur
    if first_layer not in ("minimal", "attention"):
        raise unknown_name("first_layer", first_layer, ("minimal", "attention"))
    coordinates = Coordinates()
    states = States(language, coordinates)
    to = StackCoordinates.take(language, coordinates)
    k, deepest = language.n_types, language.max_depth
    shape: dict[str, Any] = {"embedding": "onehot", "n_layers": 1, "d_mlp": 2 * k * (deepest - 1)}
    if first_layer == "attention":
        count = CountCoordinates.take(language, coordinates)
        shape = {"embedding": "token", "n_layers": 2, "d_mlp": 2 * k * (2 * deepest - 1)}
    model = empty_model(
        language,
        model_name=f"uniform-attention-{first_layer}",
        attention="uniform",
        d_model=coordinates.size,
        d_head=len(to.values),
        n_ctx=n_ctx,
        ln_c=ln_c,
        dtype=dtype,
        device=device,
        **shape,
    )
    if first_layer == "attention":
        write_first_layer(model, states, count)
    write_second_layer(model.blocks[-1], states, to)
    write_unembed(model, states, to.excluded, q, opening_knows_type=True)
    return model


@checked
@torch.no_grad()
def balanced(
    language: DyckLanguage,
    *,
    seed: int = 0,
    spread: float = 1.5,
    q: float = 0.5,
    n_ctx: int = 2048,
    dtype: torch.dtype = torch.float64,
    device: str | None = None,
) -> DyckTransformer:
    """Theorem 1: random attention that satisfies the balance condition; exact at any length.

    W_Q is Gaussian, and W_K is Gaussian conditioned on Eq. 11 given W_Q (an orthogonal projection
    of the differences of its rows), so every solution with a W_Q of full rank can come up and
    nothing else is preferred. How an opening bracket, BOS or a closing bracket of depth 0 attends
    is not restricted at all. Values, MLP and unembedding are then made for these scores, see
    `write_second_layer`. Different seeds give different patterns and the same function. Where the
    paper's proof has an MLP of 6 layers, one hidden layer of 2k(D − 1) ReLUs is enough here, since
    the type and depth of the last token stay in the residual stream and the unembedding can read
    them.

    Args:
        language: Dyck(k, D).
        seed: of W_Q and W_K; global random state is neither read nor changed.
        spread: standard deviation of the attention scores before conditioning. 0 is uniform
            attention; 1.25 gives about the variation between seeds of attention that is random
            altogether, the default half as much again.
        q: probability of an opening bracket where both are possible.
        n_ctx: longest input, BOS included.
        dtype: of weights and activations, see the table.
        device: None for TransformerLens' default.

    Returns:
        A `DyckTransformer`: minimal first layer (Eq. 19), one block of Eq. 6, one head.

    Raises:
        ValueError: `q` is not strictly between 0 and 1, `spread` is negative, or it is so large
            that at length `n_ctx` rounding errors could exceed the weight of the top of the stack.
    """
    DyckDistribution(language, q)  # refuses a q for which some prefixes never occur
    if not 0 <= spread < math.inf:
        raise ValueError(
            f"spread is a standard deviation, so it must be finite and not negative, got {spread}"
        )
    coordinates = Coordinates()
    states = States(language, coordinates)
    to = StackCoordinates.take(language, coordinates)
    model = empty_model(
        language,
        model_name="balanced",
        embedding="onehot",
        n_layers=1,
        d_model=coordinates.size,
        d_head=states.size,
        d_mlp=2 * language.n_types * (language.max_depth - 1),
        n_ctx=n_ctx,
        dtype=dtype,
        device=device,
    )
    attn = model.blocks[0].attn
    for weight, drawn in zip(
        (attn.W_Q, attn.W_K), _balanced_weights(states, seed, spread), strict=True
    ):
        # states come first in the stream; what else is there has no part in a score
        weight[0, : states.size].copy_(drawn)
    weakest = write_second_layer(model.blocks[0], states, to)
    # Rounding errors of n terms that ought to cancel, each at most the largest weight
    if n_ctx * torch.finfo(dtype).eps > weakest:
        raise ValueError(
            f"spread={spread} is too large for n_ctx={n_ctx} in "
            f"{str(dtype).removeprefix('torch.')}: the top of the stack can have {weakest:.1g} of "
            "the weight of another bracket, and rounding may hide it beyond "
            f"{int(weakest / torch.finfo(dtype).eps)} tokens; take a smaller spread or n_ctx, "
            "or a wider dtype"
        )
    write_unembed(model, states, to.excluded, q, opening_knows_type=True)
    return model


def _balanced_weights(
    states: States, seed: int, spread: float
) -> tuple[Float[Tensor, "state d_head"], Float[Tensor, "state d_head"]]:
    """W_Q and W_K that satisfy Eq. 11, float64; scores deviate by `spread`.

    d_head is the number of states.
    """
    language, n_states = states.language, states.size
    generator = torch.Generator().manual_seed(seed)
    # a score is Σ over n dimensions of products of two such numbers, over √n (attn_scale):
    # its deviation is that of one product, √spread · √spread
    drawn = torch.randn(
        2, n_states, n_states, generator=generator, dtype=torch.float64
    ) * math.sqrt(spread)
    W_Q, W_K = drawn
    queries = W_Q[states.closing]
    if len(queries) > 1:
        # Eq. 11: key differences of pairs are orthogonal to query differences of closing brackets
        # n queries differ in at most n − 1 directions; Vh has them orthonormal, largest first
        directions = torch.linalg.svd(queries - queries.mean(0), full_matrices=False).Vh[
            : len(queries) - 1
        ]
        for t in range(language.n_types):
            for depth in range(1, language.max_depth + 1):
                opening, closing = states.open(t, depth), states.close(t, depth - 1)
                # half to each of a pair: the difference loses all of it, and neither is preferred
                excess = (W_K[opening] - W_K[closing]) @ directions.T @ directions / 2
                W_K[opening] -= excess
                W_K[closing] += excess
    return W_Q, W_K


@checked
@torch.no_grad()
def stack(
    language: DyckLanguage,
    *,
    gap: float = 30.0,
    q: float = 0.5,
    n_ctx: int = 2048,
    dtype: torch.dtype = torch.float64,
    device: str | None = None,
) -> DyckTransformer:
    """The interpretable solution: brackets attend to the top of their stack, which the MLP closes.

    After Yao et al. 2021: a query at depth d scores opening brackets of depth d, and of those the
    latest, by a linear position encoding i / T_max (they match depths by angle, Eq. 21; here it is
    one coordinate per depth). Where nothing is open, BOS stands at depth 0. The opening brackets of
    depth d before position i are at least two positions apart, and the last of them is the top of
    the stack, so the attention that goes elsewhere is at most

        e^−gap (1 + 1 / (1 − e^−gap)),   2e-13 for the default,

    at any length up to `n_ctx`. For that, scores grow to about gap · n_ctx: here length costs
    precision, in `balanced` it does not. Positions put this model outside Theorem 1, so Eq. 11 does
    not apply to it.

    Args:
        language: Dyck(k, D).
        gap: difference of score between the top of the stack and what comes closest to it; hard
            attention as it grows. Below about 3 the model is no longer exact.
        q: probability of an opening bracket where both are possible.
        n_ctx: longest input, BOS included; also T_max.
        dtype: of weights and activations, see the table.
        device: None for TransformerLens' default.

    Returns:
        A `DyckTransformer`: minimal first layer (Eq. 19), linear positions, one block of Eq. 6, one
        head.

    Raises:
        ValueError: `q` is not strictly between 0 and 1, or `gap` is not a positive number.
    """
    DyckDistribution(language, q)  # refuses a q for which some prefixes never occur
    if not 0 < gap < math.inf:
        raise ValueError(f"gap must be positive and finite, got {gap}")
    k, deepest = language.n_types, language.max_depth
    coordinates = Coordinates()
    states = States(language, coordinates)
    types, (bos, sink), excluded = coordinates.take(k), coordinates.take(2), coordinates.take(k)
    position = coordinates.take(1)[0]  # linear positions are in the last coordinate
    model = empty_model(
        language,
        model_name="stack",
        embedding="onehot",
        position="linear",
        t_max=n_ctx,
        n_layers=1,
        d_model=coordinates.size,
        d_head=max(k + 1, deepest + 2),
        d_mlp=2 * k,
        n_ctx=n_ctx,
        dtype=dtype,
        device=device,
    )
    to = [*types, bos]
    _write_top_of_stack(model.blocks[0].attn, states, to, sink, position, gap, n_ctx)
    unit = 0
    # the top of the stack is asked for wherever something is open, after opening brackets too
    gate = [state for depth in range(1, deepest + 1) for state in states.at_depth(depth)]
    for t in range(k):
        unit = write_decoder(
            # √0.5 is what the coordinate of the type on top has (above); 0 is what others have
            model.blocks[0].mlp,
            unit,
            types[t],
            gate,
            excluded[t],
            margin=math.sqrt(0.5),
        )
    write_unembed(model, states, excluded, q, opening_knows_type=False)
    return model


def _write_top_of_stack(
    attn: Any,
    states: States,
    to: list[int],
    sink: int,
    position: int,
    gap: float,
    n_ctx: int,
) -> None:
    """Attention to the top of the stack: its type is written to a coordinate of `to`, BOS last."""
    k, deepest = states.language.n_types, states.language.max_depth
    W_Q, W_K, W_V, W_O = (weight[0] for weight in (attn.W_Q, attn.W_K, attn.W_V, attn.W_O))
    # The wrong depth must lose even if it is n_ctx positions later and there are n_ctx of it:
    # n_ctx positions are worth n_ctx · gap / 2 (below), one more gap is what is asked for, and
    # log n_ctx outweighs that there may be n_ctx such keys, whose weights add up
    match = gap * (n_ctx / 2 + 1) + math.log(n_ctx)
    for depth in range(deepest + 1):
        # W_QK: a query of depth d is e_d times the scale, which divides the score again; so a
        # key's score is its own entry d: `match` for what opened depth d, 0 for all others
        W_Q[states.at_depth(depth), depth] = attn.attn_scale
        W_K[[states.open(t, depth) for t in range(k)] if depth else states.bos, depth] = match
    # BOS asks as depth 0 does, and finds itself
    W_Q[states.bos, 0] = attn.attn_scale
    # one more dimension, in which every query is the same: the key says how late it stands
    attn.b_Q[0, deepest + 1] = attn.attn_scale
    # the position is i / n_ctx, so i is worth gap · i / 2; what opens one depth is two apart
    W_K[position, deepest + 1] = gap * n_ctx / 2  # `gap` for two positions
    # W_OV: a key of type t adds 1 to the coordinate of t and −1 to the sink. The sum is 0, so P⊥
    # takes nothing away, and what is attended to alone has norm √2: LN_C makes it 1 / √2
    for head_dim, coordinate in enumerate(to):
        keys = (
            states.bos
            if coordinate == to[-1]
            else [states.open(head_dim, d) for d in range(1, deepest + 1)]
        )
        W_V[keys, head_dim] = W_O[head_dim, coordinate] = 1
        W_O[head_dim, sink] = -1
