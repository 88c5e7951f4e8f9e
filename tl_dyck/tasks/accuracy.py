"""How well a model has learned a task: at the tokens that count, and against the exact law."""

from __future__ import annotations

from typing import Any, SupportsIndex

import torch

from tl_dyck.intervals import ratio_of_sums
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_seed
from tl_dyck.kit.errors import DyckError
from tl_dyck.reading.inputs import check_finite, check_predicts, hides_bos, warn_of_first
from tl_dyck.reading.predict import Accuracy, LanguageModel, likeliest, predictions, weighted_mean
from tl_dyck.tasks.draws import seeded
from tl_dyck.tasks.protocol import Task


class UnknownLawError(DyckError, ValueError):
    """A task does not say what the exact law of its strings is."""


@checked
def counted_accuracy(
    task: Task,
    model: LanguageModel,
    *,
    n: SupportsIndex = 1000,
    long: bool = False,
    seed: SupportsIndex = 0,
    device: Any = None,
    chunk: SupportsIndex = 100,
) -> Accuracy:
    """Share of the tokens that a task counts that have the largest logit, given what is before.

    Of a task with a metric of its own, `accuracy`, it is that: of a `DyckTask` its
    `closing_accuracy`.

    Args:
        task: gives the strings, and says which of their tokens count.
        model: causal; maps tokens to logits; run without gradients.
        n: number of strings.
        long: strings of `long_lengths` instead of the training distribution.
        seed: of the strings.
        device: where the model is.
        chunk: strings per forward pass, which bounds the memory.

    Raises:
        NotCausalError: predictions depend on later tokens.
        ValueError: `n` or `chunk` is below 1, or no token of so few strings counts.
        VocabularyError: the model reads other tokens.

    Warns:
        VocabularyWarning: an adopted model that after BOS prefers what no string begins with
            (`tl_dyck.reading.inputs.warn_of_first`); that of a `DyckTask`
            `tl_dyck.adopt` has warned of.
    """
    n, chunk = check_integer("n", n, least=1), check_integer("chunk", chunk, least=1)
    own = getattr(task, "accuracy", None)
    if own is not None:
        found: Accuracy = own(model, n=n, long=long, seed=seed, device=device, chunk=chunk)
        return found
    check_predicts(model, task.language)
    check_finite(model)
    _warn_of_ids(task, model)
    tokens = task.sample(n, long=long, generator=seeded(None, check_seed(seed)))
    # BOS is not predicted: place 0 is left out, as `predictions` leaves it out
    counted = task.counted_positions(tokens)[:, 1:].double()
    counted[:, : hides_bos(model)] = 0.0  # of which nobody can be asked who has read nothing
    d_vocab = task.language.d_vocab
    right = [
        likeliest(logits) == expected
        for expected, logits in predictions(
            model, tokens, d_vocab, first=1, device=device, chunk=chunk
        )
    ]
    share, error = weighted_mean(torch.cat(right), counted)
    if share is None:
        raise ValueError(f"{task.name} counts no token of any of {n} strings; raise n")
    return Accuracy(any_token=share, n=n, error=error)


def _warn_of_ids(task: Task, model: LanguageModel) -> None:
    """Of a model that was adopted; which symbols may come first, only the law says."""
    if not hasattr(model, "vocabulary") or task.language.has_stack:
        return
    law = task.next_token_probs(torch.tensor([[task.language.bos_token]]))
    if law is not None:
        warn_of_first(model, task.language, law[0, 0, : task.language.bos_token] > 0)


@checked
def nats_over_law(
    task: Task,
    model: LanguageModel,
    *,
    n: SupportsIndex = 1000,
    seed: SupportsIndex = 0,
    device: Any = None,
    chunk: SupportsIndex = 100,
) -> tuple[float, float]:
    """How many nats per token a model loses against the exact law, on fresh training strings.

    The mean, over the tokens of the strings, of the Kullback–Leibler divergence of the model's
    prediction from the law of what follows. In expectation it is the model's cross-entropy less
    the entropy floor; as what follows is not drawn, its error is smaller.

    Args:
        task: a task that knows its law.
        model: causal; maps tokens to logits; run without gradients.
        n: number of strings.
        seed: of the strings.
        device: where the model is.
        chunk: strings per forward pass.

    Returns:
        The mean, and its standard error over strings.

    Raises:
        UnknownLawError: the task does not know its law.
    """
    n, chunk = check_integer("n", n, least=1), check_integer("chunk", chunk, least=1)
    check_predicts(model, task.language)
    check_finite(model)
    _warn_of_ids(task, model)
    tokens = task.sample(n, generator=seeded(None, check_seed(seed)))
    law = task.next_token_probs(tokens)
    if law is None:
        raise UnknownLawError(f"the task {task.name!r} does not say what its exact law is")
    d_vocab, bos = task.language.d_vocab, task.language.bos_token
    divergences = []
    for rows, (expected, logits) in zip(
        law[:, :-1].split(chunk),
        predictions(model, tokens, d_vocab, first=1, device=device, chunk=chunk),
        strict=True,
    ):
        log_probs = logits.double().log_softmax(-1)[..., :d_vocab]
        # Σ p log p - p log m; what cannot follow has p = 0, and its logit may be -∞
        nats = (torch.xlogy(rows, rows) - torch.where(rows > 0, rows * log_probs, 0.0)).sum(-1)
        # BOS as filling: nothing follows
        asked = expected != bos
        asked[:, : hides_bos(model)] = False
        divergences.append(torch.where(asked, nats, 0.0))
    lengths = (tokens[:, 1 + hides_bos(model) :] != bos).sum(-1).double()
    return ratio_of_sums(torch.cat(divergences).sum(-1).numpy(), lengths.numpy())
