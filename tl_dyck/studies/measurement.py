"""What a study measures on a trained model, and how closely.

Accuracy, loss, balance, heads, certificates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from tl_dyck.certify import certify_dyck
from tl_dyck.certify.deadline import by_work
from tl_dyck.certify.language import certify_language
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.intervals import ratio_of_sums
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_SEEDS, not_finite
from tl_dyck.kit.configuration import Configuration, drawn, whole
from tl_dyck.kit.files import write_bytes, write_tensors
from tl_dyck.kit.records import finite_rows, read_sealed, sealed
from tl_dyck.kit.verdicts import read_verdict
from tl_dyck.models import DyckTransformer, lean_logits
from tl_dyck.probes.balance import balance_violation, tokens_of
from tl_dyck.probes.likeness import likeness_of_strings
from tl_dyck.probes.variation import variation_of_patterns
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.tasks import DyckTask, Task, counted_accuracy
from tl_dyck.training import TrainResult
from tl_dyck.training.run import stream

_PARTS = {
    "": "any_token",
    "_error": "error",
    "_closing_only": "closing_only",
    "_after_open": "after_open",
    "_after_close": "after_close",
    "_after_close_error": "after_close_error",
}

#: What is measured of `ClosingAccuracy`, in the training distribution and at length.
ACCURACIES: tuple[str, ...] = tuple(
    f"{name}{part}" for name in ("accuracy", "long_accuracy") for part in _PARTS
)

_FILE = "measures.json"
_PATTERNS, _CERTIFICATE = "patterns.safetensors", "certificate.safetensors"
_LANGUAGE = "language.safetensors"
# relative to the run's folder
PROOF = "every-prefix.proof"  # for ``tl-dyck check``

_SECONDS = 10.0
"""Of work, for a question about one prefix; ample. No number depends on how fast the machine is."""


@dataclass(frozen=True, kw_only=True)
class Measures(Configuration):
    """Measurement of a trained model: a configuration that knows how to make it.

    It may have a method ``on_model(task, step, model, folder)``, too, which is called at every row
    of a run's history.
    """

    #: Number of the code: another where the same fields give other metrics.
    code: ClassVar[int] = 1

    def measure(self, result: TrainResult, folder: Path) -> dict[str, Any]:
        """Measure a trained model; returns metrics, and may leave files in the run's folder."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Measurement(Measures):
    """Options of measuring one model of a study: sample sizes and probes.

    Attributes:
        n_accuracy: strings for the closing accuracy in distribution.
        n_long: strings for the closing accuracy at long lengths.
        n_strings: strings for the cross-entropy and for stack-likeness.
        n_certified: prefixes on which one-layer models are certified against inserted matched
            pairs; 0 for none.
        n_inserted: blocks of nested pairs inserted into each at most.
        decided_length: models of one layer or two, without positions, are decided on every prefix
            up to this length (`certify_language`), as far as half a minute of work goes (which is
            counted, not timed); 0 for none.
        data_seed: of everything that is measured. Strings are fresh for every purpose and every
            model's seed, so that intervals over seeds hold the error of the test sets as well;
            only prefixes that are certified are the same for all.

    Raises:
        ValueError: a number is too small.
    """

    n_accuracy: int = drawn(2000)
    n_long: int = drawn(300)
    n_strings: int = drawn(2000)
    n_certified: int = drawn(8, least=0)
    n_inserted: int = whole(2)
    decided_length: int = whole(28, least=0)
    data_seed: int = whole(1_000_003, least=0, most=MOST_SEEDS - 1)

    #: Another number where the same fields give other metrics: then runs are done again.
    code: ClassVar[int] = 3

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        fields = super().to_dict()
        if not self.decided_length:  # as measurements were before there was such a thing
            del fields["decided_length"]
        return fields

    @checked
    @by_work()
    def measure(self, result: TrainResult, folder: Path) -> dict[str, Any]:
        """Measure a trained model; rows (heads, certificates) and patterns go into its folder.

        Returns:
            Metrics: those of `behaviour`, balance_violation (None where it is not defined),
            stack_likeness (the largest share of closing brackets at which a head attends
            most to the top of the stack), and of one-layer models proved_share, refuted_share,
            logit_change; of those without positions proved_to, the length up to which every prefix
            is right. Of a task that is no `DyckTask`, those of `behaviour`.
        """
        model, task = result.model, result.task
        behaves, closings = behaviour(model, task, self, result.seed)
        write_tensors(
            folder / _PATTERNS, {"patterns": attention_on(model, task.language.probe_string)}
        )
        if not isinstance(task, DyckTask):  # what follows takes brackets
            write_measures(folder, {})
            return dict(behaves)
        beta = float(balance_violation(model)) if has_balance(model) else None
        seed = stream(self.data_seed, "heads", result.seed)
        # 500 strings have thousands of closing brackets: a head's share is then known to about 1 %
        tokens = tokens_of(model, task, None, min(self.n_strings, 500), seed)
        stack = likeness_of_strings(model, *tokens)  # also of weights that are no numbers
        heads = finite_rows(
            {"layer": layer, "head": head}
            | {name: float(getattr(stack, name)[layer, head]) for name in _STACK}
            for layer in range(model.cfg.n_layers)
            for head in range(model.cfg.n_heads)
        )
        certificates = self._certificates(model, task, folder)
        languages = self._languages(model, task, folder)
        facts = ("chance", "chance_at_closing", "ceiling_at_closing")
        chance = {name: getattr(stack, name) for name in facts}
        write_measures(
            folder,
            {
                "heads": heads,
                "certificates": certificates,
                "languages": languages,
                "closings": closings,
                "stack_chance": chance,
            },
        )
        looks = [
            head["argmax_at_closing"] for head in heads if head["argmax_at_closing"] is not None
        ]
        metrics = {**behaves, "balance_violation": beta, "stack_likeness": max(looks, default=None)}
        if certificates:
            for status in ("proved", "refuted"):
                share = [row["status"] for row in certificates].count(status) / len(certificates)
                metrics[f"{status}_share"] = share
            # what was seen, not the bound: a string shows it
            metrics["logit_change"] = max(row["logit_change_seen"] for row in certificates)
        if languages:
            # one row: a model is decided once
            metrics["proved_to"] = languages[0]["proved_to"]
        return metrics

    def _certificates(
        self, model: DyckTransformer, task: DyckTask, folder: Path
    ) -> list[dict[str, Any]]:
        """Certify a one-layer model against inserted matched pairs; keeps worst strings' patterns.

        The prefixes are as long as those of training strings can be, so that insertions lead
        beyond.
        """
        if model.cfg.n_layers != 1 or self.n_certified == 0 or not _is_finite(model):
            return []
        found = certify_dyck(
            model,
            task,
            n=self.n_certified,
            # a prefix of a string lacks its last bracket
            length=max(task.train_lengths) - 1,
            budget=self.n_inserted,
            seed=self.data_seed,
            time_limit=_SECONDS,
        )
        rows = finite_rows(found.to_rows())
        worst = min(rows, key=lambda row: row["margin_seen"])
        strings = {"original": worst["prefix"], "worst": worst["worst_string"]}
        write_tensors(
            folder / _CERTIFICATE,
            {name: attention_on(model, text)[0] for name, text in strings.items()},
        )
        return rows

    def _languages(
        self, model: DyckTransformer, task: DyckTask, folder: Path
    ) -> list[dict[str, Any]]:
        """Decide every prefix, in one row; keeps the pattern on the likeliest wrong one, a proof.

        The proof says that every prefix is right up to the length up to which that was decided.
        """
        cfg = model.cfg
        decided = cfg.n_layers <= 2 and cfg.position == "none" and _is_finite(model)
        if not decided or self.decided_length == 0:
            return []
        # half a minute of work: all prefixes, where a certificate is about one
        found = certify_language(model, task, self.decided_length, time_limit=3 * _SECONDS)
        wrong, exact = found.likeliest, found.accuracy
        if wrong is not None:
            patterns = {"likeliest": attention_on(model, wrong.text)[0]}
            write_tensors(folder / _LANGUAGE, patterns)
        try:
            # -1: not even the empty prefix
            if found.proved_to < 0 or cfg.n_layers > 1:
                raise NoProofError("nothing is proved, or in a form that proofs do not have")
            proof = prove_language(model, task, found.proved_to, by="boxes", time_limit=_SECONDS)
            proof.save(folder / PROOF)
            proved = PROOF
        except NoProofError:  # also of what is decided, and has no form that proofs have
            proved = None
        return finite_rows(
            [
                {
                    "status": found.status,
                    "length": self.decided_length,
                    "proved_to": found.proved_to,
                    "accuracy_low": exact and exact.low,
                    "accuracy_high": exact and exact.high,
                    "likeliest": wrong and wrong.text,
                    "is_likeliest": wrong and found.is_likeliest,
                    "probability": wrong and wrong.probability,
                    "may_follow": wrong and " ".join(wrong.may_follow),
                    "predicted": wrong and wrong.predicted,
                    "seconds": found.seconds,
                    "proof": proved,
                }
            ]
        )


_STACK = ("mass", "argmax", "mass_at_closing", "argmax_at_closing")


def write_measures(folder: Path, rows: Mapping[str, Any]) -> None:
    """Write what a run's record has no place for, by table: rows of heads, of certificates."""
    write_bytes(folder / _FILE, sealed(rows, folder.name))


def read_measures(folder: Path) -> dict[str, Any]:
    """The rows that a measurement left in a run's folder, as JSON values, by table.

    Raises:
        CorruptFileError: there are none, or they are not as they were written.
    """
    found = read_sealed(folder / _FILE, folder.name)
    for row in found.get("certificates", ()):
        row["status"] = read_verdict(row["status"])
    return found


def behaviour(
    model: DyckTransformer, task: Task, counts: Any, seed: int
) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
    """Measure a model from outside: its accuracy and cross-entropy on fresh strings.

    How many, and their seed, is said by `counts`: n_accuracy, n_long, n_strings, data_seed.

    Returns:
        Metrics: accuracy and long_accuracy, at the tokens that the task counts (each also _error,
        _closing_only, _after_open, _after_close, _after_close_error, see `ClosingAccuracy`; None of
        a task that is no `DyckTask`), loss, loss_error, entropy_floor and entropy_gap (nats per
        token). And rows of the accuracy after a closing bracket by depth:
        lengths ("training" or "long"), depth (open brackets), accuracy.
    """
    metrics: dict[str, float | None] = {}
    rows: list[dict[str, Any]] = []
    for name, lengths, n, chunk in (
        # strings in a forward pass: long ones are some twenty times as long, so 25 of them take as
        # much
        ("accuracy", "training", counts.n_accuracy, 500),
        ("long_accuracy", "long", counts.n_long, 25),
    ):
        found = counted_accuracy(
            task,
            partial(lean_logits, model),
            n=n,
            long=lengths == "long",
            seed=stream(counts.data_seed, f"closing, {lengths}", seed),
            device=model.cfg.device,
            chunk=chunk,
        )
        metrics |= {f"{name}{part}": getattr(found, field, None) for part, field in _PARTS.items()}
        rows += [
            {"lengths": lengths, "depth": depth, "accuracy": value}
            for depth, value in enumerate(getattr(found, "after_close_by_depth", ()), start=1)
        ]
    loss, loss_error = cross_entropy(
        model, task, n=counts.n_strings, seed=stream(counts.data_seed, "loss", seed)
    )
    floor = None if math.isnan(task.entropy_floor) else task.entropy_floor
    metrics |= {
        "loss": loss,
        "loss_error": loss_error,
        "entropy_floor": floor,
        "entropy_gap": None if floor is None else loss - floor,
    }
    return metrics, rows


def cross_entropy(model: DyckTransformer, task: Task, *, n: int, seed: int) -> tuple[float, float]:
    """Cross-entropy on fresh training strings, in nats per token, and its error over strings."""
    tokens = task.sample(n, generator=torch.Generator().manual_seed(seed))
    losses = []
    with torch.no_grad():
        # 500 strings at a time: what a pass needs stays small
        for rows in tokens.to(model.cfg.device).split(500):
            # the last token predicts nothing
            logits = lean_logits(model, rows[:, :-1]).double()
            losses.append(
                F.cross_entropy(
                    # [string, d_vocab, pos], as torch's cross-entropy wants the classes
                    logits.transpose(1, 2),
                    rows[:, 1:],
                    # BOS fills strings up to the longest
                    ignore_index=task.language.bos_token,
                    reduction="none",
                ).cpu()
            )
    total = torch.cat(losses).sum(-1)
    length = (tokens[:, 1:] != task.language.bos_token).sum(-1).double()
    return ratio_of_sums(total.numpy(), length.numpy())


def attention_on(model: DyckTransformer, text: str) -> Tensor:
    """Attention patterns on one string, ``[layer, head, query, key]``."""
    # [layer, batch, head, query, key]
    return attention_patterns(model, model.to_tokens(text))[:, 0]


def variation_by_layer(patterns: Tensor) -> list[dict[str, Any]]:
    """Attention variation of patterns ``[model, layer, head, query, key]``, heads matched.

    A row per layer: layer, variation, low, high, interval (its kind), level, random_baseline,
    n_models; none for one model, which does not vary. Models whose patterns are no numbers, as of
    runs that diverged, are left out.
    """
    # their rows are NaN, and were 0 in older files; all others sum to 1
    patterns = patterns[(patterns.sum(-1) > 0).flatten(1).all(1)]
    if len(patterns) < 2:
        return []
    found = variation_of_patterns(patterns)
    shared = {"interval": "t", "level": found.level}
    shared |= {"random_baseline": found.random_baseline, "n_models": found.n_models}
    ends = zip(found.matched.tolist(), found.matched_interval.tolist(), strict=True)
    return [
        {"layer": layer, "variation": value, "low": low, "high": high, **shared}
        for layer, (value, (low, high)) in enumerate(ends)
    ]


def has_balance(model: DyckTransformer) -> bool:
    """Whether β is defined: on a family with a minimal first layer, unless the model diverged."""
    cfg = model.cfg
    minimal = (
        getattr(cfg, "embedding", "token") != "token"  # an adopted model has none
        and cfg.n_layers == 1
        and cfg.n_heads == 1
        and cfg.position == "none"
    )
    return minimal and _is_finite(model)


def _is_finite(model: DyckTransformer) -> bool:
    return not_finite(dict(model.named_parameters())) is None
