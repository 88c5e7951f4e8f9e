"""How models are measured: what they predict of strings, and shares of it that are right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from tl_dyck.intervals import ratio_of_sums
from tl_dyck.kit.check import WrongValueError, shown
from tl_dyck.kit.errors import DyckError, is_refusal
from tl_dyck.language.vocabulary import VocabularyError
from tl_dyck.reading.inputs import longest_read, named_logits, unwrapped


class NotCausalError(DyckError, ValueError):
    """A model's prediction of a bracket depends on that bracket or on what follows."""


@runtime_checkable
class LanguageModel(Protocol):
    """Anything that maps ids ``[batch, pos]`` (BOS first) to logits ``[batch, pos, d_vocab]``.

    A function is taken at its word that ids and logits are those of the task, if there are as many
    logits.
    """

    def __call__(self, tokens: Tensor, /) -> Any:
        """Map tokens to logits."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Accuracy at the tokens that a task counts, given what comes before each.

    Attributes:
        any_token: share of them that have the largest logit of all tokens.
        n: number of strings; every token of a string that counts is predicted.
        error: standard error of `any_token`, over strings.
    """

    #: What the accuracy is called.
    kind: ClassVar[str] = "counted"

    any_token: float
    n: int
    error: float | None = None


def predictions(
    model: LanguageModel,
    tokens: Int[Tensor, "n pos"],
    d_vocab: int,
    *,
    first: int,
    device: Any,
    chunk: int,
) -> Iterator[tuple[Int[Tensor, "batch next"], Float[Tensor, "batch next d_vocab"]]]:
    """Have a model read strings, some at a time, after a check that it can and does not cheat.

    What has no logit is never predicted: of a model without one of BOS, it is -inf.

    Args:
        model: read without gradients.
        tokens: BOS first.
        d_vocab: of the language; a model that says of which tokens its logits are may have more.
        first: a position of the first string at which the model must not see what it predicts.
        device: where the model is.
        chunk: strings per forward pass.

    Yields:
        The tokens to be predicted, and the logits, on the CPU.

    Raises:
        NotCausalError: a prediction depends on later tokens.
        ValueError: the strings are longer than the model reads, or it draws numbers, as dropout
            does.
        VocabularyError: it returns something else than logits of the tokens.
    """
    config = getattr(unwrapped(model), "config", None)  # of an RNN
    if getattr(config, "alphabet", None) is not None and getattr(config, "bos_token", 0) is None:
        raise VocabularyError(
            "this RNN reads no BOS, which strings start with here; measure the model that it was "
            "exported from, or certify_language(rnn, …)"
        )
    n_ctx = longest_read(model)
    told = named_logits(model)
    named = d_vocab if told is None else min(told, d_vocab)
    if tokens.shape[1] - 1 > n_ctx:
        raise ValueError(
            f"{tokens.shape[1] - 1} tokens (BOS included) exceed this model's n_ctx={n_ctx:.0f}; "
            "measure it on shorter strings, or train one with a larger n_ctx"
        )
    for place, rows in enumerate(tokens.split(chunk)):
        with torch.no_grad():
            logits = _run(model, rows[:, :-1].to(device))
            if place == 0:
                _check_logits(logits, rows[:, :-1], named)
                if told is None:
                    _check_width(logits.shape[2], d_vocab)
            logits = logits.cpu()
            if place == 0:
                _check_causal(model, rows[0, :first], logits[0, first - 1], device)
        if named < d_vocab:
            never = torch.full_like(logits[..., :1], -torch.inf)
            logits = torch.cat([logits[..., :named], never, logits[..., named:]], -1)
        yield rows[:, 1:], logits
        del logits


def _run(model: LanguageModel, tokens: Tensor) -> Any:
    """What a model returns; a VocabularyError if it is none, and fails at tokens."""
    try:
        return model(tokens)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        if is_refusal(error) or hasattr(model, "cfg"):
            raise
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise VocabularyError(
            f"the model must map tokens [batch, pos] to logits; {shown(model)} fails at them: "
            f"{line}"
        ) from error


def likeliest(logits: Float[Tensor, "*any d_vocab"]) -> Int[Tensor, "*any"]:
    """The largest logit of each row, and -1, which no token is, where one of them is NaN."""
    return logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1)


def weighted_mean(
    correct: Bool[Tensor, "n pos"], weights: Float64[Tensor, "n pos"]
) -> tuple[float | None, float | None]:
    """Return a weighted mean, and its standard error over strings; None if nothing has weight."""
    total, good = weights.sum(-1), (weights * correct).sum(-1)
    if not bool((total > 0).any()):
        return None, None
    mean, error = ratio_of_sums(good.numpy(), total.numpy())
    return mean, None if math.isnan(error) else error


def _check_logits(logits: Any, tokens: Tensor, d_vocab: int) -> None:
    """Refuse what is no logit of each token at each position."""
    shape = tuple(getattr(logits, "shape", ()))
    if not isinstance(logits, Tensor):
        raise VocabularyError(
            f"the model must return logits [batch, pos, d_vocab], but returned {shown(logits)}"
        )
    if len(shape) != 3 or shape[:2] != tuple(tokens.shape) or shape[2] < d_vocab:
        raise VocabularyError(
            f"the model must return logits [batch, pos, d_vocab] with d_vocab of {d_vocab} at "
            f"least, that is {[*tokens.shape, d_vocab]}, but returned {list(shape)}"
        )


def _check_width(width: int, d_vocab: int) -> None:
    """Refuse more logits than tokens of what does not say which is of which."""
    if width != d_vocab:
        raise VocabularyError(
            f"the model returns {width} logits for the {d_vocab} tokens of the language, and "
            "nothing says which is of which; pass tl_dyck.adopt(model, Vocabulary(language, …)), "
            "or a function of our ids that returns theirs alone: "
            "lambda tokens: model(vocabulary.to_model(tokens))[..., vocabulary.ids]"
        )


def _check_causal(
    model: LanguageModel,
    prefix: Int[Tensor, " pos"],
    seen: Float[Tensor, " d_vocab"],
    device: Any,
) -> None:
    """Compare a prediction with that of the model when it is shown no more than it may."""
    alone = model(prefix[None].to(device))[0, -1].cpu()
    scale = 1 + float(alone.abs().nan_to_num().max())
    # 1e-3 of the largest logit: other shapes are summed in another order, in half precision too
    if not torch.allclose(alone, seen, rtol=0, atol=1e-3 * scale, equal_nan=True):
        if not torch.equal(alone.isnan(), seen.isnan()):
            raise NotCausalError(
                f"the model's prediction of token {len(prefix)} is NaN when later tokens are "
                "shown, or only then not; look for NaN in its weights"
            )
        again = model(prefix[None].to(device))[0, -1].cpu()
        if not torch.allclose(alone, again, rtol=0, atol=0, equal_nan=True):
            raise WrongValueError(
                "the model gives other logits when it reads the same tokens again: is it in train "
                "mode, with dropout? call its eval()"
            )
        raise NotCausalError(
            f"the model's prediction of token {len(prefix)} changes when later tokens are shown "
            f"(by {float((alone - seen).abs().max()):.3g}); closing accuracy is of causal models"
        )
