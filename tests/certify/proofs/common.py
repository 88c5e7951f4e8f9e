"""Models to prove things of, what enumeration says of them, and what the checkers say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from tl_dyck.certify import (
    check_agreement,
    check_automaton,
    check_bounds,
    check_edits,
    check_language,
    check_layer,
    check_model,
    check_paths,
    check_two_layers,
)
from tl_dyck.certify.check_language import ProofError
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import DyckTask

SMALL = DyckTask(name="small", n_types=2, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))

FAMILIES = ("minimal-onehot", "minimal-split", "minimal-yao", "figure2-onehot", "eq6", "eq49")


N = 6

TWO_MODELS = tuple(check_agreement.CLAIMS)


ONE_MODEL = sorted(check_language.CLAIMS.keys() - {"named"})

CLAIMS = check_language.CLAIMS | check_agreement.CLAIMS


CHECKERS = (
    *(check_model, check_agreement, check_automaton, check_edits, check_language),
    *(check_two_layers, check_paths, check_bounds, check_layer),
)


PAIR = DyckTask(name="d", n_types=1, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))


def check_file(path: Path, *folders: Path) -> str:
    """What a proof proves; raises ProofError with what is said if that is nothing."""
    proved, said = check_model.verdict(path, *folders)
    if not proved:
        raise ProofError(said)
    return said


def copied_out(
    folder: Path, modules: Sequence[ModuleType], *arguments: object
) -> subprocess.CompletedProcess[str]:
    """A run of the first of some checkers, copied into an empty folder, where numpy is all else."""
    alone, packages = folder / "alone", folder / "packages"
    for made in (alone, packages):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
    for module in modules:
        shutil.copy(module.__file__, alone)
    for name in ("numpy", "numpy.libs"):
        if (found := Path(np.__file__).parents[1] / name).exists():
            (packages / name).symlink_to(found, target_is_directory=True)
    command = [sys.executable, "-S", "-B", alone / Path(modules[0].__file__).name, *arguments]
    run = {"env": {**os.environ, "PYTHONPATH": str(packages)}, "capture_output": True, "text": True}
    return subprocess.run(command, check=False, cwd=folder, **run)


def run_copied_out(folder: Path, modules: Sequence[ModuleType], *arguments: object) -> str:
    """What it prints, if all is well."""
    done = copied_out(folder, modules, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def unpacked(data: bytes) -> tuple[dict, dict]:
    line, numbers = data.split(b"\n", 2)[1:]
    facts, arrays, end = json.loads(line), {}, 0
    for name, (kind, shape) in facts.pop("arrays").items():
        arrays[name] = np.frombuffer(numbers, kind, int(np.prod(shape)), end).reshape(shape)
        end += arrays[name].nbytes
    return facts, arrays


def every_prefix(
    rnn: TwoLayerRNN, language: DyckLanguage, length: int = N
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Depth, the bracket that closes, and the logits in float64, after each."""
    rnn = rnn.to(torch.float64)
    for n in range(length + 1):
        strings = language.enumerate(n, "prefix")
        tokens = torch.nn.functional.pad(strings, (1, 0), value=language.bos_token)
        logits = rnn(tokens)[:, -1].detach().numpy()
        depth = language.depth(tokens)[:, -1].tolist()
        yield from zip(depth, language.right_bracket(tokens)[:, -1].tolist(), logits, strict=True)


def enumerated(rnn: TwoLayerRNN, language: DyckLanguage, claim: str, length: int = N) -> float:
    """The least margin over all prefixes, each run through the RNN."""
    worst = np.inf
    for d, right, row in every_prefix(rnn, language, length):
        may = [right] if d else []
        if claim == "valid_token":
            may += range(0, 2 * language.n_types, 2) if d < language.max_depth else []
        rivals = range(len(row)) if claim != "closing_only" else range(1, language.bos_token, 2)
        must_not = [token for token in rivals if token not in may]
        if may and must_not:
            worst = min(worst, max(row[may]) - max(row[must_not]))
    return worst


def agreement(
    rnn: TwoLayerRNN, other: TwoLayerRNN, language: DyckLanguage, length: int = N
) -> float:
    """The least gap, in either, of the largest logit to the second; negative if they disagree."""
    worst = np.inf
    both = (every_prefix(each, language, length) for each in (rnn, other))
    for rows in zip(*both, strict=True):
        gap = min(np.diff(np.sort(row)[-2:])[0] for *_, row in rows)
        same = len({row.argmax() for *_, row in rows}) == 1
        worst = min(worst, gap if same else -gap)
    return worst


def pair_of(rnn: TwoLayerRNN, claim: str, noise: float, seed: int) -> tuple[TwoLayerRNN, dict]:
    """Another model, of other weights and another scale, or without queries; how to ask."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    if claim == "head":
        weights["W_Q"].zero_()
        weights["b_Q"].zero_()
        return TwoLayerRNN(rnn.config, weights), {"head": 0}
    generator = torch.Generator().manual_seed(seed)
    for weight in weights.values():
        weight += noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    config = replace(rnn.config, attn_scale=2 * rnn.config.attn_scale)
    other = TwoLayerRNN(config, weights)
    return other, {"other": other}


def rnn_of(family: str, seed: int, task: DyckTask = SMALL, **options: object) -> TwoLayerRNN:
    config = get_config(
        family, task, n_layers=1, dtype=torch.float64, initializer_range=0.7, **options
    )
    model, generator = build_model(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".b_" in name:  # zero at first
                weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return export_rnn(model)


def with_bias(rnn: TwoLayerRNN, shift: float, language: DyckLanguage) -> TwoLayerRNN:
    """Closing brackets by so much more likely."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][1 : language.bos_token : 2] += shift
    return TwoLayerRNN(rnn.config, weights)
