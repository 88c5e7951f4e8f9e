"""Everything that a study measures on one trained model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tl_dyck.certify import certify_dyck
from tl_dyck.files import write_json, write_tensors
from tl_dyck.models import DyckTransformer
from tl_dyck.probes import load_probe
from tl_dyck.study.config import StudyConfig
from tl_dyck.study.kept import file_digests, identity_of, is_kept
from tl_dyck.study.results import without_infinity, without_nan
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainResult, lean_logits

__all__ = ["cross_entropy", "measure"]

_CODE = "tl_dyck.measures/2"
"""Of the code below: another number where it measures otherwise."""

_PATTERNS, _CERTIFICATE = "patterns.safetensors", "certificate.safetensors"

_SECONDS = 10.0
"""For a question about one prefix; far more than is needed, so that no number depends on the machine."""


def cross_entropy(model: DyckTransformer, task: DyckTask, *, n: int, seed: int) -> tuple[float, float]:
    """Cross-entropy on fresh training strings, nats per token, and its standard error over strings.

    Args:
        model: run without gradients.
        task: gives the strings.
        n: number of strings.
        seed: of the strings.
    """
    tokens = task.sample(n, generator=torch.Generator().manual_seed(seed))
    losses = []
    with torch.no_grad():
        for rows in tokens.to(model.cfg.device).split(500):
            logits = lean_logits(model, rows[:, :-1]).double()
            losses.append(
                F.cross_entropy(
                    logits.transpose(1, 2), rows[:, 1:], ignore_index=task.language.bos_token, reduction="none"
                ).cpu()
            )
    total = torch.cat(losses).sum(-1)
    length = (tokens[:, 1:] != task.language.bos_token).sum(-1).double()
    mean = total.sum() / length.sum()
    # a ratio of two sums: its error is that of the residuals (delta method)
    error = (total - mean * length).std() / length.mean() / n**0.5
    return float(mean), float(error)


def measure(result: TrainResult, folder: Path, config: StudyConfig) -> None:
    """Measure a trained model and write `measures.json` and `patterns.safetensors` into its folder.

    Does nothing if they are there already: of the same run and weights, measured by the same version, as closely.
    """
    path = folder / "measures.json"
    settings = {key: value for key, value in config.to_dict().items() if key.startswith(("n_", "data_seed"))}
    identity = identity_of(result, settings, _CODE)
    if is_kept(path, identity, (_PATTERNS, _CERTIFICATE)):
        return
    model, task = result.model, result.task
    device, seed = model.cfg.device, config.data_seed
    predict = partial(lean_logits, model)
    close = task.closing_accuracy(predict, n=config.n_accuracy, seed=seed, device=device, chunk=500)
    far = task.closing_accuracy(predict, n=config.n_long, long=True, seed=seed, device=device, chunk=25)
    loss, loss_error = cross_entropy(model, task, n=config.n_strings, seed=seed)
    stack = load_probe("stack_likeness")(model, task, n=min(config.n_strings, 500), seed=seed)
    row: dict[str, Any] = {
        "family": model.cfg.model_name,
        "seed": result.seed,
        "status": result.status,
        "steps": result.steps,
        "seconds": result.seconds,
        "accuracy": close.any_token,
        "accuracy_closing_only": close.closing_only,
        "long_accuracy": far.any_token,
        "long_accuracy_closing_only": far.closing_only,
        "loss": loss,
        "loss_error": loss_error,
        "entropy_floor": task.entropy_floor,
        "entropy_gap": loss - task.entropy_floor,
        "balance_violation": _balance_violation(model),
    }
    heads = [
        {
            "layer": layer,
            "head": head,
            **{
                name: float(getattr(stack, name)[layer, head])
                for name in ("mass", "argmax", "mass_at_closing", "argmax_at_closing")
            },
        }
        for layer in range(model.cfg.n_layers)
        for head in range(model.cfg.n_heads)
    ]
    certificates = _certificates(model, task, config, folder)
    if certificates:
        shares = {f"{status}_share": _share(certificates, status) for status in ("certified", "falsified")}
        row |= {**shares, "logit_change": max(found["logit_change_seen"] for found in certificates)}
    chance = {"chance": stack.chance, "chance_at_closing": stack.chance_at_closing}
    write_tensors(folder / _PATTERNS, {"patterns": _patterns(model, task.language.probe_string)})
    files = file_digests(folder, [_PATTERNS, *([_CERTIFICATE] if certificates else [])])
    measured = {
        "identity": identity,
        "files": files,
        "row": without_nan(row),
        "heads": [without_nan(head) for head in heads],
    }
    write_json(path, {**measured, "stack_chance": chance, "certificates": certificates})


def _certificates(model: DyckTransformer, task: DyckTask, config: StudyConfig, folder: Path) -> list[dict[str, Any]]:
    """Certify a one-layer model against inserted matched pairs; keeps the patterns on the worst string.

    The prefixes are as long as those of training strings can be, so that insertions lead beyond.
    """
    if model.cfg.n_layers != 1 or config.n_certified == 0 or not _is_finite(model):
        return []
    length = max(task.train_lengths) - 1
    found = certify_dyck(
        model,
        task,
        n=config.n_certified,
        length=length,
        budget=config.n_inserted,
        seed=config.data_seed,
        time_limit=_SECONDS,
    )
    rows = [without_infinity(row) for row in found.to_rows()]
    worst = min(rows, key=lambda row: row["margin_seen"])
    strings = {"original": worst["prefix"], "worst": worst["worst_string"]}
    patterns = {name: _patterns(model, text)[0] for name, text in strings.items()}
    write_tensors(folder / _CERTIFICATE, patterns)
    return rows


def _share(certificates: list[dict[str, Any]], status: str) -> float:
    return [row["status"] for row in certificates].count(status) / len(certificates)


def _patterns(model: DyckTransformer, text: str) -> Tensor:
    """Attention patterns on one string, ``[layer, head, query, key]``."""
    with torch.no_grad():
        _, cache = model.run_with_cache(text, names_filter=lambda name: name.endswith("hook_pattern"))
    return torch.stack([cache["pattern", layer][0] for layer in range(model.cfg.n_layers)])


def _balance_violation(model: DyckTransformer) -> float | None:
    """β, or None for a family on which it is not defined, or a model that diverged."""
    cfg = model.cfg
    if cfg.embedding == "token" or cfg.n_layers != 1 or cfg.n_heads != 1 or cfg.position != "none":
        return None
    if not _is_finite(model):
        return None
    return float(load_probe("balance_violation")(model))


def _is_finite(model: DyckTransformer) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())
