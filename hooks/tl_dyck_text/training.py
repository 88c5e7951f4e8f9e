"""Train a text classifier: clean, random edits, exact worst strings, or interval bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tl_dyck.certify import PerturbationSpace
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.configuration import Configuration, drawn, number, whole
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.registry import unknown_name
from tl_dyck.kit.screen import share_bar
from tl_dyck.reading.inputs import check_finite
from tl_dyck_text.attack import Attack
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.edits import BatchEdits, encode_sentences, pad, random_strings
from tl_dyck_text.ibp import IntervalBound
from tl_dyck_text.model import TextConfig, TextTransformer, build_text_model

_EVERY = 50
_RAMP = 0.5  # share of the training over which the weight of the robust loss rises

OBJECTIVES = ("clean", "augment", "worst", "ibp")


class TextTrainingError(DyckError, RuntimeError):
    """The weights are no longer finite."""


@final
@dataclass(frozen=True, kw_only=True)
class TextTraining(Configuration):
    """Options of training a text classifier.

    Attributes:
        objective: what is minimised beside the cross-entropy of the sentences themselves: "clean"
            nothing; "augment" that of one random string of each one's space; "worst" that of its
            worst string (`Attack`: one shortest path a sentence and round); "ibp" that of logits at
            interval bounds (`IntervalBound`).
        weight: of that other loss at the end, in [0, 1]; the clean loss has the rest. None for 1,
            and 0.5 for "ibp", which with 0.7 and more soon answers always the same (SST2, eight
            synonyms). It rises to that linearly over the first half.
        steps: of training.
        batch_size: sentences a step; those of a batch are of similar length.
        learning_rate: of AdamW, which falls to 0 as a cosine.
        weight_decay: of AdamW.
    """

    objective: str = "clean"
    weight: float | None = number(None, most=1)
    steps: int = whole(1000)
    batch_size: int = drawn(64)
    learning_rate: float = number(3e-3)
    weight_decay: float = number(1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)

    @property
    def final_weight(self) -> float:
        """Of the robust loss, at the end."""
        return (0.5 if self.objective == "ibp" else 1.0) if self.weight is None else self.weight


@checked
@torch.enable_grad()
def train_text(
    config: TextConfig,
    sentences: Sequence[Sentence],
    options: TextTraining | None = None,
    *,
    space: PerturbationSpace | None = None,
    seed: int = 0,
    progress: bool = True,
) -> tuple[TextTransformer, list[dict[str, float]]]:
    """Train a `text-1l` classifier.

    Args:
        config: of the model.
        sentences: to learn from; n_ctx must be enough for all of them, with the space's
            duplications and "<cls>".
        options: how.
        space: what the robust objectives defend against; from `tl_dyck_text.edits.text_space`.
        seed: of weights and batches.
        progress: whether to show a progress bar.

    Returns:
        The model, and the training curve: step (how many were made until then), seconds (processor
        time), clean_loss, robust_loss (means of the last 50 steps); a row after the first step,
        after every 50, and after the last.

    Raises:
        ValueError: a robust objective without a space, one that the model or space cannot have, or
            a sentence that is too long for n_ctx.
        TextTrainingError: the loss is no longer finite.
    """
    options = options or TextTraining()
    if space is None and options.objective != "clean":
        raise ValueError(
            f"objective {options.objective!r} needs a space; see tl_dyck_text.edits.text_space"
        )
    model = build_text_model(config, seed)
    robust = _robust(model, options, space, np.random.default_rng(seed + 1))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, decay = options.learning_rate, options.weight_decay
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=decay)
    rows = encode_sentences(config, sentences, space)
    labels = torch.tensor([sentence.label for sentence in sentences])
    curve: list[dict[str, float]] = []
    recent: list[tuple[float, float]] = []
    batches = _batches([len(row) for row in rows], options.batch_size, np.random.default_rng(seed))
    model.train()
    with share_bar(f"training ({options.objective})", enabled=progress) as shown:
        start = process_time()
        for step, chosen in enumerate(batches):
            done = step / options.steps
            shown(done)
            if step in (1, options.steps) or (step > 0 and step % _EVERY == 0):
                clean_loss, robust_loss = np.mean(recent, axis=0).tolist()
                row = {"step": float(step), "seconds": process_time() - start}
                curve.append({**row, "clean_loss": clean_loss, "robust_loss": robust_loss})
            if step == options.steps:
                break
            optimizer.param_groups[0]["lr"] = rate * (1 + np.cos(np.pi * done)) / 2
            strings, wanted = [rows[i] for i in chosen], labels[chosen]
            clean = F.cross_entropy(text_logits(model, strings), wanted)
            weight = options.final_weight * min(1.0, done / _RAMP)
            other = robust(strings, wanted) if robust is not None and weight > 0 else clean
            loss = (1 - weight) * clean + weight * other if robust is not None else clean
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            recent = [*recent[1 - _EVERY :], (float(clean.detach()), float(other.detach()))]
            if not np.isfinite(recent[-1]).all():
                raise TextTrainingError(
                    f"the loss is not finite at step {step}; lower learning_rate ({rate})"
                )
    return model.eval(), curve


def text_logits(model: TextTransformer, strings: Sequence[Sequence[int]]) -> Tensor:
    """Logits at the last token of each string, [batch, class]."""
    tokens, lengths = pad(strings)
    logits: Tensor = model(tokens.to(model.cfg.device))
    return logits[torch.arange(len(strings)), lengths - 1]


@checked
@torch.no_grad()
def accuracy(model: TextTransformer, sentences: Sequence[Sentence]) -> float:
    """Share of sentences whose class has the largest logit.

    Raises:
        ValueError: no sentence, or weights that are NaN or infinite.
    """
    check_finite(model)
    if not len(sentences):
        raise TextTrainingError("sentences must be at least one, got none")
    right = 0
    for start in range(0, len(sentences), 256):
        part = sentences[start : start + 256]
        predicted = text_logits(model, encode_sentences(model.text, part)).argmax(-1)
        right += int((predicted.cpu() == torch.tensor([sentence.label for sentence in part])).sum())
    return right / len(sentences)


_Robust = Callable[[Sequence[Sequence[int]], Tensor], Tensor]


def _robust(
    model: TextTransformer,
    options: TextTraining,
    space: PerturbationSpace | None,
    rng: np.random.Generator,
) -> _Robust | None:
    """The loss beside the clean one."""
    if options.objective == "clean" or space is None:
        return None
    edits = BatchEdits.of(space, model.text)
    if options.objective == "augment":
        return lambda strings, labels: F.cross_entropy(
            text_logits(model, random_strings(edits, strings, rng)), labels
        )
    if options.objective == "worst":
        attack = Attack(model, edits, rounds=3)

        def worst(strings: Sequence[Sequence[int]], labels: Tensor) -> Tensor:
            found, _ = attack(*pad(strings), labels)
            return F.cross_entropy(text_logits(model, found), labels)

        return worst
    bound = IntervalBound(model, edits)
    return lambda strings, labels: F.cross_entropy(-bound(*pad(strings), labels), labels)


def _batches(lengths: Sequence[int], size: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Batches of similar length, for ever.

    Each pass shuffles, sorts within pools of 16 batches, and shuffles again.
    """
    while True:
        order = rng.permutation(len(lengths))
        pools = [
            sorted(order[i : i + 16 * size].tolist(), key=lambda j: lengths[j])
            for i in range(0, len(order), 16 * size)
        ]
        batches = [pool[i : i + size] for pool in pools for i in range(0, len(pool), size)]
        for index in rng.permutation(len(batches)):
            yield batches[index]
