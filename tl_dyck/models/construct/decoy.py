"""Proposition 1 as a tool: a head that shows any pattern and does nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckDistribution
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.models.hooked.own import Attention
from tl_dyck.reading.decoder import departures

#: From tokens ``[batch, pos]`` to a pattern ``[batch, pos, pos]`` (query, key).
PatternFunction = Callable[[Tensor], Tensor]
Model = TypeVar("Model", bound=HookedTransformer)

_NAMED = ("stack", "uniform", "previous")
_ROW_TOLERANCE = 1e-5  # of a row's sum: room for float32


@checked
def decoy_head(model: Model, pattern: str | PatternFunction | Tensor, *, layer: int = -1) -> Model:
    """Proposition 1: the same model and one more head, with a pattern of your choice.

    No logit changes.

    The new head is the last one. Its W_V, b_V and W_O are zero, so that whatever it attends to, it
    adds nothing. TransformerLens gives all layers the same number of heads: the other layers get a
    head of zeros too, which shows uniform attention.

    Weights alone cannot show every pattern. "uniform" is shown by weights (W_Q = W_K = 0). For the
    others, the layer's attention is a `DecoyAttention`, which sets the *scores* of that head to the
    logarithm of the pattern; all hook points see it (`hook_attn_scores`, `hook_pattern`, `hook_z`),
    so no probe that reads activations can tell. It survives `copy.deepcopy`, but not disk: what
    `save_model` or a state dict keeps is the weights, with which the head shows uniform attention;
    call `decoy_head` again on the original model.

    Args:
        model: a HookedTransformer with the attention of a plain decoder; not changed.
        pattern: "stack" (the top of the stack, where nothing is open the first token; for models
            with a `cfg.language`), "uniform", "previous" (the token before; the first token looks
            at itself), a matrix ``[pos, pos]`` (query, key) as large as the longest input to come,
            or a function from tokens ``[batch, pos]`` to patterns ``[batch, pos, pos]``.
        layer: which layer shows it; negative counts from the last.

    Returns:
        A model of the same class with ``cfg.n_heads`` one higher and no hooks. Its logits were
        equal bit for bit for every kind of model tried (CPU, float32 and float64); what is certain
        is equality up to the order of sums, since the output projection has one more block of zeros
        to add.

    Raises:
        TypeError: `model` is not a HookedTransformer, or the pattern is of no known kind.
        UnknownNameError: no pattern of that name.
        ValueError: a pattern that is not causal, is negative, or whose rows do not sum to one; a
            wrong shape; a layer that is not there; attention that is no plain decoder's, where one
            more head may change the others. All before anything is built, and again for each output
            of a function.
    """
    if not isinstance(model, HookedTransformer):
        raise TypeError(f"decoy_head needs a HookedTransformer, not {type(model).__name__}")
    for where, what in departures(model):
        if where.endswith(".attn") and "DecoyAttention" not in what:
            raise ValueError(f"cannot add a head to a model with {what}")
    n_layers = model.cfg.n_layers
    if not -n_layers <= layer < n_layers:
        raise ValueError(f"layer must be between {-n_layers} and {n_layers - 1}, got {layer}")
    shown = _resolve(model, pattern)
    clone = copy.deepcopy(model).eval()
    # those on attention layers would be lost, so none are kept
    clone.reset_hooks(including_permanent=True)
    clone.cfg.n_heads += 1
    # W_Q, W_K, W_V and W_O of one head, in every layer: all layers have as many heads
    added = n_layers * 4 * clone.cfg.d_model * clone.cfg.d_head
    clone.cfg.n_params = (clone.cfg.n_params or 0) + added
    for index, block in enumerate(clone.blocks):
        block.attn = _widen(block.attn, clone.cfg, shown if index == layer % n_layers else None)
    if isinstance(shown, _FromTokens):
        shown.attach(clone)
    clone.setup()  # names the new hook points
    return clone


@final
class _Matrix:
    """A fixed pattern."""

    def __init__(self, matrix: Float[Tensor, "pos pos"]) -> None:
        self.matrix = matrix.detach().clone()

    def on(self, length: int) -> Float[Tensor, "1 query key"]:
        """The pattern on so many tokens."""
        if length > len(self.matrix):
            raise ValueError(
                f"the decoy's pattern is for at most {len(self.matrix)} tokens, but the input has "
                f"{length}: give decoy_head a larger matrix, or a function of the tokens"
            )
        return self.matrix[None, :length, :length]


@final
class _FromTokens:
    """A pattern that depends on the tokens being read, which attention layers do not see."""

    def __init__(self, function: PatternFunction) -> None:
        self.function = function
        self.now: Tensor | None = None

    def attach(self, model: HookedTransformer) -> None:
        """Listen at the embedding."""
        model.embed.register_forward_pre_hook(self._record)
        model.register_forward_hook(self._forget)

    def on(self, length: int) -> Float[Tensor, "batch query key"]:
        """As for a matrix."""
        if self.now is None or self.now.shape[1] != length:
            raise ValueError(
                "this decoy head draws its pattern from the tokens, so the model must be run from "
                "its tokens on, not from a later layer"
            )
        found = self.function(self.now)
        _check_pattern(found, tuple(self.now.shape), "the decoy's pattern")
        return found

    def _record(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.now = arguments[0]

    def _forget(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        self.now = None


class DecoyAttention(Attention):
    """Attention, but some heads show given patterns whatever their weights.

    Attributes:
        shown: head -> pattern.
    """

    shown: dict[int, _Matrix | _FromTokens]

    def calculate_attention_scores(
        self, q: Float[Tensor, "batch query head d_head"], k: Float[Tensor, "batch key head d_head"]
    ) -> Float[Tensor, "batch head query key"]:
        """Scores; those of a decoy are the log of its pattern, of which softmax is the pattern."""
        scores: Tensor = super().calculate_attention_scores(q, k)
        scores = scores.clone()
        for head, pattern in self.shown.items():
            rows = pattern.on(scores.shape[-1])
            scores[:, head] = rows.to(device=scores.device, dtype=scores.dtype).log()
        return scores


def _widen(attn: Any, cfg: Any, shown: _Matrix | _FromTokens | None) -> Attention:
    """The same attention layer with one more head, of zeros, that shows any given pattern."""
    patterns = dict(getattr(attn, "shown", {}))
    if shown is not None:
        patterns[cfg.n_heads - 1] = shown
    kind = DecoyAttention if patterns else Attention
    new: Any = kind(cfg, attn.attn_type, attn.layer_id)
    if patterns:
        new.shown = patterns
    for name, old in attn.named_parameters():
        wide = old if name == "b_O" else torch.cat([old, torch.zeros_like(old[:1])])
        setattr(new, name, nn.Parameter(wide.detach(), requires_grad=old.requires_grad))
    new.attn_scale = attn.attn_scale
    moved: Attention = new.train(attn.training).to(attn.b_O.device)
    return moved


def _resolve(model: HookedTransformer, pattern: Any) -> _Matrix | _FromTokens | None:
    """Return the pattern that the head will show, checked; None if zero weights show it."""
    if isinstance(pattern, str):
        if pattern not in _NAMED:
            raise unknown_name("pattern", pattern, _NAMED)
        if pattern == "uniform":
            return None
        if pattern == "previous":
            position = torch.arange(model.cfg.n_ctx)
            return _Matrix(
                nn.functional.one_hot((position - 1).clamp(min=0), len(position)).float()
            )
        return _FromTokens(_stack_pattern(model))
    if isinstance(pattern, Tensor):
        if pattern.ndim != 2:
            raise ValueError(
                "a pattern is a matrix [query, key], or a function of the tokens; "
                f"got shape {list(pattern.shape)}"
            )
        _check_pattern(pattern[None], (1, pattern.shape[0]), "the pattern")
        return _Matrix(pattern)
    if not callable(pattern):
        raise TypeError(
            f"a pattern is one of {', '.join(map(repr, _NAMED))}, a matrix [query, key], or a "
            f"function of the tokens, not {type(pattern).__name__}"
        )
    tokens = _trial_tokens(model)
    _check_pattern(pattern(tokens), tuple(tokens.shape), "the function's pattern for trial tokens")
    return _FromTokens(pattern)


def _stack_pattern(model: HookedTransformer) -> PatternFunction:
    language = getattr(model.cfg, "language", None)
    if language is None:
        raise ValueError(
            "the 'stack' pattern needs a model that knows its language (cfg.language), as a "
            "DyckTransformer does; give a function of the tokens instead"
        )

    def stack(tokens: Tensor) -> Tensor:
        # -1, where nothing is open: BOS, at position 0, is attended to
        top = language.top_of_stack(tokens).clamp(min=0)
        return nn.functional.one_hot(top, tokens.shape[1]).to(torch.get_default_dtype())

    return stack


def _trial_tokens(model: HookedTransformer) -> Int[Tensor, "batch pos"]:
    """Two inputs to try a function on: prefixes of the model's language, else random tokens."""
    generator = torch.Generator().manual_seed(0)
    # short: a function is tried, not measured; with BOS it fits the context
    length = min(8, model.cfg.n_ctx - 1)
    language = getattr(model.cfg, "language", None)
    if language is None:
        tokens = torch.randint(model.cfg.d_vocab, (2, length), generator=generator)
    else:
        tokens = DyckDistribution(language).sample(2, length, mode="prefix", generator=generator)
        tokens = torch.cat([torch.full((2, 1), language.bos_token), tokens], 1)
    return tokens.to(model.cfg.device)


def _check_pattern(pattern: Any, shape: tuple[int, ...], what: str) -> None:
    """Refuse what no causal attention head can show."""
    expected = [*shape, shape[-1]]
    if not isinstance(pattern, Tensor) or not pattern.is_floating_point():
        kind = pattern.dtype if isinstance(pattern, Tensor) else type(pattern).__name__
        raise TypeError(f"{what} must be a tensor of real numbers, not {kind}")
    if list(pattern.shape) != expected:
        raise ValueError(f"{what} has shape {list(pattern.shape)}, expected {expected}")
    if not pattern.isfinite().all() or (pattern < 0).any():
        raise ValueError(
            f"{what} has negative or infinite entries: attention weights are probabilities"
        )
    future = pattern.triu(1) > 0
    if future.any():
        where = future.nonzero()[0].tolist()
        raise ValueError(
            f"{what} is not causal: query {where[-2]} attends to the later key {where[-1]}; use "
            ".tril() and divide by the row sums"
        )
    off = (pattern.sum(-1) - 1).abs()
    if (off > _ROW_TOLERANCE).any():
        where = (off > _ROW_TOLERANCE).nonzero()[0].tolist()
        raise ValueError(
            f"{what}: row {where[-1]} sums to {float(pattern.sum(-1)[tuple(where)]):.6g}, "
            "not to one"
        )
