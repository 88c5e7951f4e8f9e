"""What an importance is measured on: checks of models, tokens and metrics, and two metrics.

Knows: which positions of the data are real, for everything that averages over them or draws from
them. A position is real if its token is a symbol of the string. BOS is not: it is the same in every
string and no part of any. What fills up short strings is not either; a causal model computes
something there as well, of which no metric hears. What counts as BOS and filling says the caller
(`where`, `ignore`), else the task, else the model's vocabulary (``cfg.language``), else its
tokenizer. Where nobody says, nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_instance, check_integer
from tl_dyck.kit.errors import DyckError
from tl_dyck.language import VocabularyError
from tl_dyck.reading.inputs import check_finite, hides_bos, named_logits

#: ``metric(logits [batch, pos, d_vocab], tokens [batch, pos]) -> [batch]``; larger is better.
Metric = Callable[..., Tensor]

# About so much memory does the largest activation of one forward pass take by default: on a CPU
# what its caches hold (larger passes were slower), but no fewer tokens than matrix products need to
# be worth it.
_BYTES = {"cpu": 2 * 2**20, "other": 256 * 2**20}
_TOKENS = 512  # of a batch at least, however wide the model: fewer do not keep a core busy
_LARGEST = 2**31 - 1  # token


class MetricError(DyckError, ValueError):
    """A metric returned something else than one finite number per example."""


@checked
def log_likelihood(
    logits: Float[Tensor, "batch pos d_vocab"],
    tokens: Int[Tensor, "batch pos"],
    *,
    ignore: SupportsIndex | Sequence[SupportsIndex] | None = None,
) -> Float[Tensor, " batch"]:
    """Mean log-probability of the next token, nats per token: minus the usual cross-entropy.

    Differentiable.

    Args:
        logits: of a model.
        tokens: that it read.
        ignore: a token that is not to be predicted, such as the one that fills up short strings; or
            several. None for none.
    """
    for name, value in (("logits", logits), ("tokens", tokens)):
        check_instance(name, value, Tensor, "a tensor")
    # [batch, pos, d_vocab] for [batch, pos]
    if logits.ndim != 3 or tokens.shape != logits.shape[:2]:
        raise ValueError(
            "logits are [batch, pos, d_vocab] and tokens [batch, pos], not "
            f"{list(logits.shape)} and {list(tokens.shape)}"
        )
    target, n_logits = tokens[:, 1:], logits.shape[-1]
    counted = torch.ones_like(target, dtype=torch.bool)
    if ignore is not None:
        counted = ~torch.isin(target, target.new_tensor(ignored(ignore)))
    _refuse_silent(target[counted], n_logits)
    at = target.clamp(0, n_logits - 1)[..., None]  # a token that does not count may have no logit
    found = logits.log_softmax(-1)[:, :-1].gather(-1, at)[..., 0]
    if ignore is None:
        return found.mean(-1)
    return (found * counted).sum(-1) / counted.sum(-1)


def _refuse_silent(target: Int[Tensor, " n"], n_logits: int) -> None:
    """Refuse to predict what has no logit."""
    odd = target[(target < 0) | (target >= n_logits)]
    if len(odd):
        raise WrongValueError(
            f"token {int(odd[0])} is to be predicted, but only the first {n_logits} tokens have a "
            "logit; give a metric of your own, or ignore=… it"
        )


def ignored(ignore: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    """One token or several as plain integers."""
    several = isinstance(ignore, Sequence) and not isinstance(ignore, (str, bytes))
    given: Any = ignore if several else [ignore]
    return tuple(
        check_integer("a token to ignore", token, least=0, most=_LARGEST) for token in given
    )


def check_model(model: Any) -> None:
    """Refuse what has no attention heads that hooks can reach, and weights that are no numbers.

    Raises:
        TypeError: not a HookedTransformer.
        ValueError: no attention heads, or weights that are NaN or infinite.
    """
    if not all(hasattr(model, name) for name in ("cfg", "blocks", "hook_dict", "run_with_hooks")):
        raise TypeError(f"head importance needs a HookedTransformer, not {type(model).__name__}")
    if getattr(model.cfg, "load_in_4bit", False):
        raise ValueError(
            "the weights of this model are packed in 4 bits; "
            "load it without load_in_4bit to ablate heads"
        )
    for layer in range(model.cfg.n_layers):
        name = f"blocks.{layer}.attn.hook_z"
        if name not in model.hook_dict:
            raise ValueError(
                "this model has no attention heads to ablate: "
                f"layer {layer} has no hook point {name!r}"
            )
    if model.cfg.n_layers < 1 or model.cfg.n_heads < 1:
        raise ValueError(
            f"this model has no attention heads to ablate: {model.cfg.n_layers} layers of "
            f"{model.cfg.n_heads} heads"
        )
    check_finite(model)


def check_tokens(model: Any, data: Any, where: Any = None) -> Int[Tensor, "batch pos"]:
    """The data as it is, after a check that the model can read it.

    Raises:
        TypeError: not whole numbers.
        ValueError: a wrong shape, no examples, too long, or tokens that are not in the vocabulary.
    """
    if (
        not isinstance(data, Tensor)
        or data.is_floating_point()
        or data.is_complex()
        or data.dtype == torch.bool
        or data.is_meta
    ):
        kind = f"a tensor of {data.dtype}" if isinstance(data, Tensor) else type(data).__name__
        raise TypeError(
            f"data must be a tensor of token ids [batch, pos], not {kind}; "
            "model.to_tokens(…) makes one"
        )
    if data.ndim != 2 or 0 in data.shape:
        raise ValueError(
            f"data must be token ids [batch, pos], at least one of each, not {list(data.shape)}"
        )
    cfg = model.cfg
    if data.shape[1] > cfg.n_ctx:
        raise ValueError(
            f"the data is {data.shape[1]} tokens long, but the model reads at most "
            f"n_ctx={cfg.n_ctx}: shorten it with data[:, :{cfg.n_ctx}]"
        )
    if int(data.min()) < 0 or int(data.max()) >= cfg.d_vocab:
        odd = int(data.min()) if int(data.min()) < 0 else int(data.max())
        raise ValueError(
            f"token {odd} is not in the model's vocabulary of {cfg.d_vocab} (0 to "
            f"{cfg.d_vocab - 1})"
        )
    if where is not None and (not isinstance(where, Tensor) or where.dtype != torch.bool):
        kind = f"a tensor of {where.dtype}" if isinstance(where, Tensor) else type(where).__name__
        raise WrongTypeError(f"where must be a tensor of booleans [batch, pos], not {kind}")
    if where is not None and (where.shape != data.shape or not where.any()):
        raise ValueError(
            f"where marks positions of the data, so it has its shape {list(data.shape)} and marks "
            f"at least one; it is {list(where.shape)} and marks {int(where.sum())}"
        )
    return data


def evaluate(
    metric: Metric,
    logits: Float[Tensor, "batch pos d_vocab"],
    tokens: Int[Tensor, "batch pos"],
    what: str = "the intact model",
    *,
    differentiable: bool = False,
) -> Tensor:
    """Call a user's metric and check what it returns.

    Returns:
        ``[batch]``, in float64.

    Raises:
        MetricError: another shape, or NaN or infinite numbers.
    """
    with torch.set_grad_enabled(differentiable):
        found = metric(logits, tokens)
    if not isinstance(found, Tensor) or tuple(found.shape) != (len(tokens),):
        got = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise MetricError(
            f"the metric must return one number per example, a tensor of shape [{len(tokens)}], "
            f"but returned {got}; average over positions, not over examples"
        )
    bad: Bool[Tensor, " batch"] = ~found.isfinite()
    if bad.any():
        first = int(bad.nonzero()[0])
        raise MetricError(
            f"for {what} the metric returned {found[first].item()} for {int(bad.sum())} of "
            f"{len(tokens)} examples, the first of them example {first} of its batch; leave out "
            "examples that it is not defined for"
        )
    if differentiable and not found.requires_grad:
        raise MetricError(
            "the metric has no gradient (an accuracy, say, or numbers taken out of torch); give "
            "one that is differentiable, such as log_likelihood"
        )
    return found.double()


def rows_per_pass(model: Any, length: int) -> int:
    """Return the number of strings per forward pass, so that it needs little memory."""
    cfg = model.cfg
    # the widest activation of a token; four bytes a number
    widest: int = max(cfg.d_vocab_out, cfg.d_mlp or 0, 4 * cfg.d_model, cfg.n_heads * length)
    memory = _BYTES["cpu" if str(cfg.device).startswith("cpu") else "other"]
    return max(1, memory // (4 * length * widest), _TOKENS // length)


# --- real positions -------------------------------------------------------------------------------


#: A token, or several, or none ``()``, that are no symbols of a string; None for what is known.
Ignored = SupportsIndex | Sequence[SupportsIndex] | None


def ignored_tokens(
    model: Any, ignore: Ignored = None, data: Any = None, *, instead: str
) -> tuple[int, ...]:
    """The tokens that are no symbols of a string: BOS, and what fills up short ones.

    Raises:
        VocabularyError: nobody says.
        TypeError: `ignore` is no token.
        ValueError: it is negative.
    """
    if ignore is not None:
        return ignored(ignore)
    for owner in (data, getattr(model, "cfg", None)):
        language = getattr(owner, "language", None)
        if language is not None:
            return (int(language.bos_token),)
    tokenizer = getattr(model, "tokenizer", None)
    told = (getattr(tokenizer, name, None) for name in ("bos_token_id", "pad_token_id"))
    named = {int(token) for token in told if token is not None}
    if not named:
        raise VocabularyError(
            "nothing says which tokens of this model are BOS or fill up short strings, so that "
            f"positions that are no symbols would count; pass {instead}"
        )
    return tuple(sorted(named))


def real_positions(
    model: Any, data: Int[Tensor, "batch pos"], where: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch pos"]:
    """Mark the real positions of some strings, on the CPU.

    Raises:
        TypeError: `where` is no tensor of booleans.
        ValueError: nobody says, or no position is real.
    """
    if where is None:
        known = ignored_tokens(
            model, instead="where=data != …, or torch.ones_like(data, dtype=torch.bool) for all"
        )
        where = ~torch.isin(data, torch.tensor(known, dtype=data.dtype, device=data.device))
    check_tokens(model, data, where)
    return where.cpu()


def default_metric(model: Any, metric: Metric | None, ignore: Ignored = None) -> Metric:
    """The metric that was given; None for `log_likelihood` of real tokens."""
    if metric is None:
        known = ignored_tokens(
            model, ignore, instead="metric=log_likelihood to count all, or one of your own"
        )
        named = named_logits(model) or 0
        if not named:
            raise VocabularyError(
                f"nothing says which of the {model.cfg.d_vocab_out} logits of this model are of "
                "which token; pass a metric of your own, or tl_dyck.adopt(…, outputs=[…])"
            )

        bare = hides_bos(model)  # then nothing is said of the first symbol

        def of_named(logits: Tensor, tokens: Tensor) -> Tensor:
            target = tokens[:, 1:]
            _refuse_silent(target[~torch.isin(target, target.new_tensor(known))], named)
            return log_likelihood(logits[:, bare:], tokens[:, bare:], ignore=known)

        return of_named
    if not callable(metric):
        raise WrongTypeError(f"metric must be a function of logits and tokens, not {metric!r}")
    return metric
