"""Balance violation: how far a model is from the condition that length generalisation requires.

Wen et al. 2023, Sections 3.1 and 4.2.

Notation as in `tl_dyck.reading.states`: u(query, key) is what a state, a bracket with its depth,
adds to the output of another (Eq. 12). Biases are part of q, k, v; b_O belongs to every key,
because the weights of a pattern sum to one. So Σ_keys u is P⊥ of the layer's output times its
softmax denominator, and any LayerNorm after it sees the same direction.

- Eq. 15: S[d, d', i, j] = ‖u(close(j,d), open(i,d')) + u(close(j,d), close(i,d'−1))‖: what a
  matching pair adds.
- Eq. 16: Q_j(t) = ‖u(q, BOS) + Σ_{m≤d} u(q, open(t_m, m)) + u(q, open(j, d+1)) + u(q, q)‖,
  q = close(j, d), t = (t_1 … t_d): the norm of the unnormalised output after the string BOS t
  open(j) close(j).
- Eq. 17: t* = argmin_t Q_j(t); P[d, j] = min of Q_j(t) over t whose last bracket differs from that
  of t*.
- β = mean of S / P over 1 ≤ d ≤ D−1, 1 ≤ d' ≤ D and all types i, j.

β = 0 means that matched pairs, anywhere, leave later predictions alone: with Eq. 6 this is
necessary for an optimal prediction at any length (Theorem 1), not sufficient: values that write two
types to one place cancel just as well. A small loss at length N forces S ≤ (C/N) P (Theorem 2).

The minimum over the k^d prefixes t is exact, see `shortest_sum`.

Any other model has a first layer whose output is no function of the state: it depends on positions
and on all brackets before. With ``first_layer="means"`` queries, keys and values of a state are
replaced by their means over its occurrences in strings. That is an *approximation*, good if little
of their variance is left within states (`BalanceViolation.within`), and for blocks other than Eq. 6
the theorems speak of something else: they need a LayerNorm directly after the attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_draws, check_instance, check_integer, check_seed
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage, Language
from tl_dyck.plotting.plot_recipes import dots_figure, frame
from tl_dyck.probes.shortest_sum import second_smallest_norm
from tl_dyck.reading.decoder import odd_scores
from tl_dyck.reading.hook_points import record
from tl_dyck.reading.inputs import (
    as_tokens,
    check_reads,
    language_of,
    language_with_stack,
    measured,
)
from tl_dyck.reading.states import StateIndex, contributions, visit_all
from tl_dyck.tasks import Task
from tl_dyck.tasks.protocol import is_task

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@final
@dataclass(frozen=True, kw_only=True)
class BalanceViolation:
    """Balance violation of a model, and what it is made of.

    S and P of one query share a positive factor, exp(−largest score of that query), which keeps
    saturated scores finite and cancels in their ratio.

    Attributes:
        beta: mean of `ratio`; 0 for a balanced model.
        ratio: S / P, ``[d − 1, d' − 1, i, j]``, d = 1..D−1, d' = 1..D.
        S: Eq. 15, ``[d − 1, d' − 1, i, j]``.
        P: Eq. 17, ``[d − 1, j]``.
        within: None if queries, keys and values are functions of the state; else the share of their
            variance that is left within states, 0 to 1: what the approximation by means leaves out.
    """

    beta: float
    ratio: Float[np.ndarray, "depth pair_depth n_types n_types"]
    S: Float[np.ndarray, "depth pair_depth n_types n_types"]
    P: Float[np.ndarray, "depth n_types"]
    within: float | None = None

    def __float__(self) -> float:
        return self.beta

    def to_frame(self) -> pd.DataFrame:
        """One row per query close(query_type, depth) and pair of a type and depth: ratio, S, P."""
        axes = [("depth", 1), ("pair_depth", 1), ("pair_type", 0), ("query_type", 0)]
        columns = {"ratio": self.ratio, "S": self.S, "P": self.P[:, None, None, :]}
        return frame(axes, columns)

    def plot(self) -> go.Figure:
        """What each matched pair adds, as a share of P; 0 is balanced, the line is β."""
        return dots_figure(
            self.to_frame(),
            {"S/P": "ratio"},
            rows="query {query_type} at {depth}, pair {pair_type} at {pair_depth}",
            unit="S / P",
            title="Balance violation",
            marked={"β": self.beta},
        )

    def __repr__(self) -> str:
        approximate = (
            ""
            if self.within is None
            else f", approximate: {self.within:.0%} of variance within states"
        )
        return (
            f"BalanceViolation(beta={self.beta:.4g}, largest "
            f"S/P={self.ratio.max():.4g}{approximate})"
        )


@checked
@one_thread()  # these are many small products, which threads slow down
def balance_violation(
    model: Any,
    data: Task | Int[Tensor, "*batch pos"] | None = None,
    *,
    first_layer: str = "exact",
    head: SupportsIndex | None = None,
    language: Language | None = None,
    n: SupportsIndex = 1000,
    seed: SupportsIndex = 0,
) -> BalanceViolation:
    """Measure the balance violation of the last attention layer from activations of forward passes.

    Args:
        model: for ``first_layer="exact"``, of a ``minimal-*`` or ``figure2-*`` family: one layer, a
            depth embedding, no positions. For "means" any HookedTransformer.
        data: for "means", where states are looked up: a task, from which `n` training strings are
            drawn, or tokens, BOS first.
        first_layer: "exact" or "means", see above.
        head: the head to measure, if the layer has several. Each has a softmax of its own, so their
            contributions have no common unnormalised sum, and there is no β of the layer: what is
            measured is what the head itself adds to the residual stream, without b_O, which belongs
            to no head.
        language: of the tokens; None for the task's, or the model's own.
        n: number of strings.
        seed: of the strings.

    Raises:
        TypeError: not one HookedTransformer.
        VocabularyError: nobody has said which of the model's ids are the brackets: see
            `tl_dyck.adopt`.
        ValueError: another kind of model or of attention, several heads and no `head`, a state
            that the strings do not visit, or a language of one type only or depth 1 (P needs two).
    """
    u, language, within = _contributions(model, data, first_layer, head, language, n, seed)
    k, depth = language.n_types, language.max_depth
    state = StateIndex(language)
    # [level − 1, type]: a closing bracket is in the row of the pair that it ends
    opens, closes = state.pairs()
    S = np.empty((depth - 1, depth, k, k))
    P = np.empty((depth - 1, k))
    for d in range(1, depth):
        for j in range(k):
            # the query is a closing bracket with d brackets left open, d ≥ 1 (Eq. 15)
            query = u[state.close(j, d)].numpy()
            S[d - 1, :, :, j] = np.linalg.norm(query[opens] + query[closes], axis=-1)
            # in all that end so: BOS, and the pair of level d + 1 that the query closes
            always = query[state.bos] + query[state.open(j, d + 1)] + query[state.close(j, d)]
            # levels 1 to d are rows 0 to d − 1; at each one bracket is open, of any type
            P[d - 1, j] = second_smallest_norm(always, query[opens[:d]])
    ratio = S / P[:, None, None, :]
    return BalanceViolation(beta=float(ratio.mean()), ratio=ratio, S=S, P=P, within=within)


def state_contributions(model: Any) -> Float[Tensor, "query key d_model"]:
    """u(query, key) of Eq. 12 for all pairs of states, rows of a `StateIndex`, float64.

    Each query is scaled by exp(−its largest score); states that no string reaches are zero. The
    model has a minimal first layer, see `balance_violation`.
    """
    return _contributions(model, None, "exact", None, None, 1, 0)[0]


def _contributions(
    model: Any,
    data: Task | Tensor | None,
    first_layer: str,
    head: SupportsIndex | None,
    language: Language | None,
    n: SupportsIndex,
    seed: SupportsIndex,
) -> tuple[Tensor, DyckLanguage, float | None]:
    """`state_contributions`, the language, and the share of variance within states."""
    measured(model, "balance violation")
    language_with_stack(model, "balance_violation is", language, data)
    head, n, seed = _check_head(model, head), check_draws(n), check_seed(seed)
    if language is not None:
        check_instance("language", language, Language, "a language")
    language, tokens = _strings(model, data, first_layer, language, n, seed)
    filling = tokens == language.bos_token
    # the first BOS is a state like others; those behind a string are filling
    filling[:, 0] = False
    state = StateIndex(language)
    states = state.of(tokens, language.depth(tokens))[~filling]
    attn = model.blocks[-1].attn
    names = [f"blocks.{model.cfg.n_layers - 1}.attn.hook_{name}" for name in "qkv"]
    found = record(model, tokens.to(model.cfg.device), names)
    vectors = torch.cat([found[name][:, :, head].double().cpu() for name in names], dim=-1)
    vectors = vectors[~filling]
    known, index, count = states.unique(return_inverse=True, return_counts=True)
    missing = set(state.reachable()) - set(known.tolist())
    if missing:
        token, deep = divmod(min(missing), state.depths)
        raise ValueError(
            f"the strings never visit {language.alphabet[token]!r} at depth {deep} ({len(missing)} "
            "states in all are not visited); give more strings, or longer ones"
        )
    # of a minimal first layer all vectors of a state are equal, and this is each of them
    means = vectors.new_zeros(len(known), vectors.shape[1]).index_add_(0, index, vectors)
    means /= count[:, None]
    within = None
    if first_layer == "means":
        spread = (vectors - vectors.mean(0)).square().sum()
        within = float((vectors - means[index]).square().sum() / spread) if spread > 0 else 0.0
    q, key, v = means.split([found[name].shape[-1] for name in names], dim=-1)
    value = v @ attn.W_O[head].detach().double().cpu()
    if model.cfg.n_heads == 1:
        value = value + attn.b_O.detach().double().cpu()
    n_states = language.d_vocab * state.depths
    # states that no string reaches stay 0; nobody asks for them (`reachable`, above)
    u = torch.zeros(n_states, n_states, value.shape[-1], dtype=torch.float64)
    u[known[:, None], known] = contributions(q, key, value, attn.attn_scale)
    return u, language, within


def _strings(
    model: Any,
    data: Task | Tensor | None,
    first_layer: str,
    language: Language | None,
    n: int,
    seed: int,
) -> tuple[DyckLanguage, Tensor]:
    """The language, and strings that visit all its states."""
    if not isinstance(first_layer, str) or first_layer not in ("exact", "means"):
        raise unknown_name("first_layer", first_layer, ("exact", "means"))
    if not isinstance(data, (str, Tensor, type(None))) and not is_task(data):
        raise WrongTypeError(f"data must be a task or tokens, not {type(data).__name__}")
    if first_layer == "exact":
        why = _why_not_minimal(model)
        if why is not None:
            _check_language(language_of(model, language))  # else no call will do
            raise ValueError(f"{why}; {_approximately(model)}")
        if data is not None and not is_task(data):
            raise ValueError(
                'first_layer="exact" is computed from the weights and reads no strings: leave them '
                'out (data), or give first_layer="means"'
            )
        language = _check_language(check_minimal(model))
        return language, visit_all(language)
    for what in odd_scores(model.cfg):
        raise ValueError(_not_defined(what))
    if data is None:
        raise ValueError(
            'first_layer="means" looks states up in strings: give a task, or tokens, as in '
            f"{_call(model)}"
        )
    tokens, read = tokens_of(model, data, language, n, seed)
    language = _check_language(read)
    if not language.is_prefix(tokens).all():
        raise ValueError(f"the strings are not all prefixes of {language}")
    return language, tokens


def tokens_of(
    model: Any, data: Any, language: Language | None, n: int, seed: int
) -> tuple[Int[Tensor, "batch pos"], Any]:
    """Tokens, or strings that a task draws, and the language that they are of."""
    if is_task(data):
        language = language or data.language
        check_reads(model, language)
        data = data.sample(n, generator=torch.Generator().manual_seed(seed))
    return as_tokens(model, data), language_of(model, language)


def _not_defined(what: str) -> str:
    return (
        f"balance violation is not defined for {what}; what a pair of brackets adds there does "
        "not follow from their queries, keys and values"
    )


def _call(model: Any) -> str:
    """The call that measures a model, whatever is wrong with the one that was made."""
    minimal = _why_not_minimal(model) is None
    words = ["model", *([] if minimal else ["task", 'first_layer="means"'])]
    return f"balance_violation({', '.join([*words, *['head=0'] * (model.cfg.n_heads > 1)])})"


def _approximately(model: Any) -> str:
    """What to do where the exact measure is not defined."""
    for what in odd_scores(model.cfg):
        return _not_defined(what)
    return f"{_call(model)} approximates"


def _check_head(model: Any, head: SupportsIndex | None) -> int:
    n_heads = model.cfg.n_heads
    if head is None and n_heads > 1:
        for what in odd_scores(model.cfg):
            raise ValueError(_not_defined(what))
        raise ValueError(
            f"balance violation is defined for one head; this model has {n_heads}: "
            f"{_call(model)} measures the first by itself"
        )
    chosen = 0 if head is None else check_integer("head", head)
    if not 0 <= chosen < n_heads:
        raise ValueError(f"there is no head {head}; the model's heads are 0 to {n_heads - 1}")
    return chosen


def check_minimal(model: Any) -> DyckLanguage:
    """The language of a model of one layer whose queries, keys and values are of states."""
    why = _why_not_minimal(model)
    if why is not None:
        raise ValueError(why)
    language: DyckLanguage = model.cfg.language
    return language


def _why_not_minimal(model: Any) -> str | None:
    cfg = model.cfg
    if getattr(cfg, "embedding", "token") == "token" or cfg.n_layers != 1:
        return (
            "the contribution of a state needs a minimal first layer "
            f"(a minimal-* or figure2-* model), not {cfg.model_name!r}: "
            "elsewhere keys depend on more than type and depth"
        )
    if cfg.position != "none":
        return (
            "the contribution of a state is defined without positions; "
            f"this model has {cfg.position!r} ones"
        )
    return None


def _check_language(language: DyckLanguage) -> DyckLanguage:
    if language.n_types < 2 or language.max_depth < 2:
        raise ValueError(
            "to compare strings that differ in the type of an open bracket takes two types and "
            "depth 2 at least, "
            f"not {language.n_types} and {language.max_depth}"
        )
    return language
