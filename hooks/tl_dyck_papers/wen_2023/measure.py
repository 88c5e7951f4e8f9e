"""What is measured on one model: accuracy, balance, patterns, heads without their patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.kit.configuration import drawn
from tl_dyck.kit.files import write_json, write_tensors
from tl_dyck.kit.records import finite_rows
from tl_dyck.language import DyckLanguage
from tl_dyck.models import DyckTransformer
from tl_dyck.probes.balance import balance_violation
from tl_dyck.probes.drift import pair_drift
from tl_dyck.probes.length import accuracy_at_length
from tl_dyck.reading.attention import share_of_largest
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.reading.interventions import run
from tl_dyck.studies.measurement import (
    Measures,
    attention_on,
    behaviour,
    cross_entropy,
    has_balance,
    write_measures,
)
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainResult
from tl_dyck.training.run import stream

PATTERNS = "patterns.safetensors"

#: A head looks interpretable if at this share of closing brackets its largest weight is on one
#: place with a name: the top of the stack, the bracket itself, the bracket before, or BOS …
INTERPRETABLE = 0.9
#: … and more than this weight is there on average: the largest weight of a nearly uniform row is on
#: some place, too.
MASS = 0.5
#: Name of the place "any bracket of the type and depth of the top of the stack".
LIKE_THE_TOP = "a bracket like the top"
#: A pattern can be replaced if, with another in its place, the closing accuracy falls by no more
#: than this.
REPLACEABLE = 0.01
#: A model has learned the task from this closing accuracy on.
LEARNED = 0.97


def probe_strings(language: DyckLanguage, data_seed: int) -> dict[str, str]:
    """The strings on which patterns are compared: the paper's, its double, and others.

    Those are one of nested mixed types, and two random ones.
    """
    k, depth = language.n_types, language.max_depth
    alphabet = language.alphabet
    mixed = [alphabet[2 * (m % k)] for m in range(depth)] + [
        alphabet[2 * (m % k) + 1] for m in reversed(range(depth))
    ]
    generator = torch.Generator().manual_seed(data_seed)
    task = DyckTask(name="probe", n_types=k, max_depth=depth, brackets=language.brackets)
    random = {
        f"random, {length}": language.to_string(
            task.distribution.sample(1, length, generator=generator)[0]
        )
        for length in (16, 26)
    }
    paper = language.probe_string
    return {"paper": paper, "longer": paper * 2, "mixed": "".join(mixed), **random}


@final
@dataclass(frozen=True, kw_only=True)
class PaperMeasurement(Measures):
    """Options of measuring one model for the paper's claims.

    Attributes:
        n_accuracy: strings for the closing accuracy in distribution.
        n_long: strings at lengths 400–500.
        n_strings: strings for the cross-entropy, and prefixes for replaced patterns.
        data_seed: of everything that is measured.
        watched: whether the model is also measured on the way.
        forecast: whether its accuracy at length is also predicted from its weights.
    """

    n_accuracy: int = drawn(1000)
    n_long: int = drawn(200)
    n_strings: int = drawn(500)
    data_seed: int = 1_000_003
    watched: bool = False
    forecast: bool = False

    #: Another number where the same fields give other metrics: then runs are done again.
    code: ClassVar[int] = 4

    def measure(self, result: TrainResult, folder: Path) -> dict[str, Any]:
        """Measure a trained model; the rows of its heads, and its patterns, go into its folder."""
        model, task = result.model, result.task
        behaves, closings = behaviour(model, task, self, result.seed)
        texts = probe_strings(task.language, self.data_seed)
        write_tensors(
            folder / PATTERNS, {name: attention_on(model, text) for name, text in texts.items()}
        )
        heads = (
            heads_of(
                model,
                task,
                n=self.n_strings,
                seed=stream(self.data_seed, "heads", result.seed),
            )
            if result.status != "diverged"
            else []
        )
        write_measures(folder, {"heads": finite_rows(heads), "closings": closings})
        return {**behaves, **_balance(model), **self._from_weights(model, task, result.seed)}

    def _from_weights(
        self, model: DyckTransformer, task: DyckTask, seed: int
    ) -> dict[str, float | None]:
        """What is asked of minimal first layers alone: one look, and two forecasts; else None.

        The forecasts are of the accuracy after a closing bracket at the task's long lengths:
        `pair_drift` for the middle of them, `accuracy_at_length` for all.
        """
        found: dict[str, float | None] = dict.fromkeys(
            ("look_depth", "forecast_drift", "forecast_moments")
        )
        if not has_balance(model):
            return found
        found["look_depth"] = share_at_depth(model, task, n=self.n_long, seed=self.data_seed + seed)
        if self.forecast:
            middle, lengths = sum(task.long_lengths) / 2, task.closing_lengths(long=True)
            found["forecast_drift"] = pair_drift(model, task.distribution).accuracy(middle)
            moments = accuracy_at_length(model, lengths, task.distribution)
            found["forecast_moments"] = moments.after_close
        return found

    def on_model(self, task: DyckTask, step: int, model: DyckTransformer, folder: Path) -> None:
        """Measure loss and balance violation on the way, a file per step; repeating is harmless."""
        if not self.watched:
            return
        loss, _ = cross_entropy(model, task, n=self.n_strings, seed=self.data_seed)
        row = {"step": step, "loss": loss, "entropy_floor": task.entropy_floor, **_balance(model)}
        write_json(folder / f"checkpoint-{step}.json", finite_rows([row])[0])


def _balance(model: DyckTransformer) -> dict[str, float | None]:
    """β and the largest S/P, where they are exactly defined."""
    if not has_balance(model):
        return {"beta": None, "largest_ratio": None}
    found = balance_violation(model)
    return {"beta": float(found.beta), "largest_ratio": float(found.ratio.max())}


# --- heads ----------------------------------------------------------------------------------------


def heads_of(model: DyckTransformer, task: DyckTask, *, n: int, seed: int) -> list[dict[str, Any]]:
    """Measure every head at closing brackets, and the model with other patterns in its place.

    The *look* of a head: the share of closing brackets (with something left on the stack) whose
    largest weight is on the top of the stack, on the bracket itself, on the bracket before, on BOS;
    and the mean weight there. "A bracket like the top" is any of the top's type and depth.

    Patterns are replaced at `hook_pattern` by uniform ones, and by rows drawn uniformly from the
    simplex, anew for every string: in one head at a time, and in all heads together that can be
    replaced one at a time.

    Returns:
        One row per head.
    """
    language = task.language
    tokens, last = task.sample_closing(n, generator=torch.Generator().manual_seed(seed))
    right = tokens.gather(1, last[:, None])[:, 0]
    seen = torch.where(torch.arange(tokens.shape[1]) < last[:, None], tokens, language.bos_token)[
        :, :-1
    ]
    looks = _looks(model, tokens, language)
    length = seen.shape[1]
    generator = torch.Generator().manual_seed(seed + 1)
    patterns = {
        "uniform": torch.ones(1, length, length).tril(),
        "random": torch.empty(n, length, length).exponential_(generator=generator).tril(),
    }
    patterns = {kind: rows / rows.sum(-1, keepdim=True) for kind, rows in patterns.items()}

    def without(*heads: tuple[int, int]) -> dict[str, float]:
        """Accuracy with each kind of pattern in some heads."""
        return {
            kind: _accuracy(_replaced(model, seen, heads, pattern), right, last)
            for kind, pattern in patterns.items()
        }

    usual = _accuracy(run(model, seen), right, last)
    heads = [
        (layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)
    ]
    after = {head: without(head) for head in heads}
    idle = [head for head in heads if min(after[head].values()) >= usual - REPLACEABLE]
    together = min(without(*idle).values()) if idle else usual
    rows = []
    for layer, head in heads:
        look = {name: float(found[layer, head]) for name, found in looks.items()}
        best = max(NAMED, key=lambda name: look[f"look_{name}"])
        interpretable = look[f"look_{best}"] >= INTERPRETABLE and look[f"mass_{best}"] > MASS
        rows.append(
            {
                "layer": layer,
                "head": head,
                **look,
                "looks_like": best if interpretable else "",
                "accuracy": usual,
                **{f"accuracy_{kind}": value for kind, value in after[layer, head].items()},
                "accuracy_together": together,
                "interpretable": interpretable,
                "replaceable": (layer, head) in idle,
            }
        )
    return rows


#: Places that a head may look at.
NAMED = ("the top of the stack", "itself", "the bracket before", "BOS")


def _looks(
    model: DyckTransformer, tokens: Int[Tensor, "n pos"], language: DyckLanguage
) -> dict[str, Float[Tensor, "layer head"]]:
    """How often the largest weight at a close is on a place, and the mean weight there."""
    top = language.top_of_stack(tokens)
    where = language.is_close(tokens) & (top >= 0)
    here = torch.arange(tokens.shape[1]).expand(tokens.shape)
    places = dict(zip(NAMED, (top.clamp_min(0), here, here - 1, here * 0), strict=True))
    like = _like_the_top(tokens, top.clamp_min(0), language)[where]
    found: dict[str, list[Tensor]] = {}
    for pattern in attention_patterns(model, tokens):
        rows = pattern.transpose(1, 2)[where]  # [close, head, key]
        for name, place in places.items():
            at = place[where].clamp_min(0)[:, None]
            share = share_of_largest(rows, at.expand(rows.shape[:2]))
            weight = rows.gather(-1, at[..., None].expand(*rows.shape[:2], 1))[..., 0]
            found.setdefault(f"look_{name}", []).append(share.mean(0))
            found.setdefault(f"mass_{name}", []).append(weight.double().mean(0))
        largest = rows.masked_fill(~like[:, None], -1).amax(-1) >= rows.amax(-1) * (1 - 1e-5)
        weight = (rows * like[:, None]).sum(-1)
        found.setdefault(f"look_{LIKE_THE_TOP}", []).append(largest.double().mean(0))
        found.setdefault(f"mass_{LIKE_THE_TOP}", []).append(weight.double().mean(0))
    return {name: torch.stack(shares) for name, shares in found.items()}


def share_at_depth(model: DyckTransformer, task: DyckTask, *, n: int, seed: int) -> float:
    """How often one head's largest weight is on *an* opening bracket at the depth of the top.

    At closing brackets with something left on the stack. That is the most that can be asked of a
    head without positions on minimal embeddings: its scores are functions of two states, and the
    type of the top is in neither.
    """
    language = task.language
    tokens, _ = task.sample_closing(n, generator=torch.Generator().manual_seed(seed))
    pattern = attention_patterns(model, tokens)[0, :, 0]
    depth, opening = language.depth(tokens), ~language.is_close(tokens)
    opening &= tokens != language.bos_token
    like = opening[:, None] & (depth[:, None] == depth[:, :, None])
    found = pattern.masked_fill(~like.tril(), -1).amax(-1) >= pattern.amax(-1) * (1 - 1e-5)
    where = language.is_close(tokens) & (language.top_of_stack(tokens) >= 0)
    return float(found[where].double().mean())


def _like_the_top(
    tokens: Int[Tensor, "n pos"], top: Int[Tensor, "n pos"], language: DyckLanguage
) -> Bool[Tensor, "n query key"]:
    """Which earlier brackets are of the type and depth of the top of the stack."""
    depth = language.depth(tokens)
    same: Tensor = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
    for values in (tokens, depth):
        same = same & (values[:, None, :] == values.gather(1, top)[:, :, None])
    return same


def _replaced(
    model: DyckTransformer,
    tokens: Int[Tensor, "n pos"],
    heads: Sequence[tuple[int, int]],
    pattern: Tensor,
) -> Float[Tensor, "n pos d_vocab"]:
    """Logits with another pattern in some heads, (layer, head) each."""

    def hook_fn(found: Tensor, hook: Any, head: int) -> Tensor:
        found = found.clone()
        found[:, head] = pattern.to(found)
        return found

    places = [(f"blocks.{layer}.attn.hook_pattern", head) for layer, head in heads]
    return run(model, tokens, [(name, partial(hook_fn, head=head)) for name, head in places])


def _accuracy(logits: Tensor, right: Int[Tensor, " n"], last: Int[Tensor, " n"]) -> float:
    chosen = logits[torch.arange(len(right)), last - 1].argmax(-1).cpu()
    return float((chosen == right).double().mean())
