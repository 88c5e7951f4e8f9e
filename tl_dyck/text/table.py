"""The table: training objectives against perturbation spaces, with certificates by several certifiers.

Every run (objective, number of synonyms, seed) has a folder with its model and, per space, its certificates' summary.
What is there is not done again, so an interrupted table goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import joblib
import numpy as np
import pandas as pd
from rich.progress import track

from tl_dyck.certify import Certificate, PerturbationSpace, Symbols, certify_many
from tl_dyck.files import CorruptFileError, ensure_folder, read_json, sha256, write_bytes, write_json
from tl_dyck.machine import one_thread
from tl_dyck.models.digest import weights_digest
from tl_dyck.models.text import TextConfig, TextTransformer, load_text_model, save_text_model
from tl_dyck.processes import Watched
from tl_dyck.text.corpus import Corpus, Sentence, build_words
from tl_dyck.text.edits import encode_sentences, text_space
from tl_dyck.text.training import OBJECTIVES, TextTraining, accuracy, train_text

__all__ = ["SPACES", "TextTable", "certify_sentences", "run_table", "summarise"]

_CODE = "tl_dyck.text-table/2"
"""Of the code below: another number where it trains or measures otherwise."""

SPACES = ("dup:2,sub:2", "del:2,sub:2", "del:2,dup:2", "dup:2,del:2,sub:2")
"""ARC's spaces on SST2, and all three together."""


@final
@dataclass(frozen=True, kw_only=True)
class TextTable:
    """What a table is asked for.

    Attributes:
        objectives: of training, see `TextTraining`.
        ks: synonyms a word; models are trained for each.
        seeds: one model each.
        spaces: what is certified; training defends against all of them at once (`defend`).
        defend: the space of the robust objectives.
        training: how to train; its objective is replaced.
        model: fields of `TextConfig` but the words.
        limit: sentences of the test set that are certified; 0 for all.
        n_interval: of these, how many also by `interval` (0 for all); it is the slowest.
        max_strings: spaces of so few strings (counted with repetitions) are enumerated, to check the exact verdicts;
        n_enumerated: but no more than this many in each space.
        time_limit: seconds a sentence.
    """

    objectives: tuple[str, ...] = OBJECTIVES
    ks: tuple[int, ...] = (1, 8)
    seeds: tuple[int, ...] = (0, 1, 2)
    spaces: tuple[str, ...] = SPACES
    defend: str = SPACES[-1]
    training: TextTraining = field(default_factory=lambda: TextTraining(seconds=60.0))
    model: tuple[tuple[str, Any], ...] = ()
    limit: int = 0
    n_interval: int = 0
    max_strings: int = 2000
    n_enumerated: int = 100
    time_limit: float = 2.0

    def __post_init__(self) -> None:
        for name in ("objectives", "ks", "seeds", "spaces"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be different from each other and at least one, not {values}")
        if min(self.ks) < 1:
            raise ValueError(f"ks are numbers of synonyms a word, at least 1, not {min(self.ks)}")

    def config(self, words: tuple[str, ...]) -> TextConfig:
        """Of the models."""
        return TextConfig(words=words, **dict(self.model))


def run_table(
    corpus: Corpus,
    synonyms: dict[str, tuple[str, ...]],
    folder: str | Path,
    table: TextTable | None = None,
    *,
    n_jobs: int = 1,
    progress: bool = True,
) -> pd.DataFrame:
    """Train and certify everything, one row per objective, k, seed and space; also written as ``table.parquet``.

    Columns: objective, k, seed, space, clean (accuracy), certified, falsified, undecided (shares of all sentences, by
    the exact certifier), interval (certified share), enumerated (sentences whose space was enumerated), disagreements
    (verdicts of enumeration and exact that differ among those), median_ms, p95_ms, interval_ms (median), steps,
    seconds.

    Raises:
        CorruptFileError: the folder holds runs of another table or other data.
    """
    table, path = table or TextTable(), ensure_folder(folder)
    data = [asdict(row) for row in (*corpus.train, *corpus.test)]
    identity = sha256([_CODE, asdict(table), data, sorted(synonyms.items())])
    _claim(path, identity)
    tasks = [(objective, k, seed) for seed in table.seeds for k in table.ks for objective in table.objectives]
    work = Watched.by_this_process(_in_one_thread)
    calls = (joblib.delayed(work)(corpus, synonyms, path, table, *task) for task in tasks)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        done = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(calls)
        rows = [row for found in track(done, "table", total=len(tasks), disable=not progress) for row in found]
    frame = pd.DataFrame(rows)
    write_bytes(path / "table.parquet", frame.to_parquet(index=False))
    return frame


def _claim(path: Path, identity: str) -> None:
    """Refuse to mix results of different questions."""
    file = path / "table.json"
    if not file.exists():
        write_json(file, {"identity": identity})
    elif read_json(file).get("identity") != identity:
        raise CorruptFileError(
            f"{str(path)!r} holds results of another table or other data, or of another version; choose another folder"
        )


def _in_one_thread(*arguments: Any) -> list[dict[str, Any]]:
    with one_thread():
        return _one(*arguments)


def _one(
    corpus: Corpus,
    synonyms: dict[str, tuple[str, ...]],
    path: Path,
    table: TextTable,
    objective: str,
    k: int,
    seed: int,
) -> list[dict[str, Any]]:
    folder = path / "runs" / f"{objective}-k{k}-seed{seed}"
    config = table.config(build_words(corpus.train))
    which = {"objective": objective, "k": k, "seed": seed}
    if not _is_of(folder / "training.json", which):
        options = TextTraining(**{**table.training.to_dict(), "objective": objective})
        space = text_space(table.defend, config, synonyms, k)
        model, curve = train_text(config, corpus.train, options, space=space, seed=seed, progress=False)
        save_text_model(model, folder)
        write_json(folder / "training.json", {"of": which, "curve": curve})
    model, curve = load_text_model(folder), read_json(folder / "training.json")["curve"]
    test = corpus.test[: table.limit or None]
    shared = {
        **which,
        "clean": accuracy(model, test),
        "steps": curve[-1]["step"],
        "seconds": curve[-1]["seconds"],
    }
    rows = []
    for text in table.spaces:
        file = folder / f"{text.replace(':', '').replace(',', '-')}.json"
        measured = {"weights": weights_digest(model), "space": text}
        if not _is_of(file, measured):
            found = _measure(model, test, text_space(text, config, synonyms, k), table)
            write_json(file, {"of": measured, "found": found})
        rows.append({**shared, "space": text, **read_json(file)["found"]})
    return rows


def _is_of(file: Path, what: dict[str, Any]) -> bool:
    """Whether a file is there and says that it is of that; one that was copied from another run is made again."""
    saved = read_json(file) if file.exists() else None
    return isinstance(saved, dict) and saved.get("of") == what


def _measure(
    model: TextTransformer, test: Sequence[Sentence], space: PerturbationSpace, table: TextTable
) -> dict[str, Any]:
    """One space, all sentences, by all certifiers."""
    exact = certify_sentences(model, test, space, time_limit=table.time_limit)
    some = test[: table.n_interval or None]
    boxes = certify_sentences(model, some, space, certifier="interval", time_limit=table.time_limit)
    rows = [model.text.encode(sentence.text) for sentence in test]
    small = [i for i, row in enumerate(rows) if space.n_edit_paths(row) <= table.max_strings][: table.n_enumerated]
    listed = certify_sentences(model, [test[i] for i in small], space, certifier="exhaustive")
    differ = sum(exact[i].status != found.status for i, found in zip(small, listed, strict=True))
    ms = np.array([certificate.seconds for certificate in exact]) * 1e3
    shares = {status: _share(exact, status) for status in ("certified", "falsified", "unknown")}
    return {
        "certified": shares["certified"],
        "falsified": shares["falsified"],
        "undecided": shares["unknown"],
        "interval": _share(boxes, "certified"),
        "enumerated": len(small),
        "disagreements": differ,
        "median_ms": float(np.median(ms)),
        "p95_ms": float(np.quantile(ms, 0.95)),
        "interval_ms": float(np.median([certificate.seconds for certificate in boxes]) * 1e3),
    }


def certify_sentences(
    model: TextTransformer,
    sentences: Sequence[Sentence],
    space: PerturbationSpace,
    *,
    certifier: str = "exact",
    time_limit: float | None = None,
    n_jobs: int = 1,
    progress: bool = False,
) -> list[Certificate]:
    """Is each sentence's label predicted on every string of its space? Sentences in order, certificates in words.

    Raises:
        ValueError: a sentence is longer than the model reads.
    """
    rows = encode_sentences(model.text, sentences)
    labels = [sentence.label for sentence in sentences]
    found = certify_many(model, rows, labels, space, certifier, time_limit=time_limit, n_jobs=n_jobs, progress=progress)
    symbols = Symbols(model.text.words, " ", silent=model.text.cls_token)
    return [certificate.written(symbols) for certificate in found]


def summarise(rows: pd.DataFrame, *, n_bootstrap: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Means over seeds with 95 % percentile bootstrap intervals: a row per k, space and objective."""
    rng = np.random.default_rng(seed)
    found = []
    for (k, space, objective), group in rows.groupby(["k", "space", "objective"], sort=False):
        row: dict[str, Any] = {"k": k, "space": space, "objective": objective, "n": len(group)}
        for name in ("clean", "certified", "interval"):
            values = group[name].to_numpy()
            low, high = np.quantile(rng.choice(values, (n_bootstrap, len(values))).mean(1), (0.025, 0.975))
            row |= {name: group[name].mean(), f"{name}_low": low, f"{name}_high": high}
        for name in ("undecided", "median_ms", "p95_ms", "interval_ms", "steps"):
            row[name] = group[name].mean()
        row |= {"enumerated": int(group["enumerated"].sum()), "disagreements": int(group["disagreements"].sum())}
        found.append(row)
    return pd.DataFrame(found)


def _share(certificates: Sequence[Certificate], status: str) -> float:
    return float(np.mean([certificate.status == status for certificate in certificates])) if certificates else 0.0
