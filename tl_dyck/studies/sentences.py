"""The table of sentences: training objectives against perturbation spaces, by certifiers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
from typing_extensions import Unpack

from tl_dyck.certify import Certificate, PerturbationSpace
from tl_dyck.check import check_distinct
from tl_dyck.configuration import Configuration, number, whole
from tl_dyck.files import read_json, sha256, write_json
from tl_dyck.intervals import mean
from tl_dyck.models.digest import weights_digest
from tl_dyck.models.text import TextConfig, TextTransformer, load_text_model, save_text_model
from tl_dyck.records import write_tables
from tl_dyck.runs import RunOptions, Sweep, run_sweep
from tl_dyck.runs.analysis import of_each
from tl_dyck.runs.results import load_runs
from tl_dyck.runs.spec import Point
from tl_dyck.studies.measurement import read_measures, write_measures
from tl_dyck.text.certifying import certify_sentences
from tl_dyck.text.corpus import Corpus, Sentence, build_words
from tl_dyck.text.edits import text_space
from tl_dyck.text.training import OBJECTIVES, TextTraining, accuracy, train_text

_CODE = "tl_dyck.sentences/3"
"""Of the code below: another number where it trains or measures otherwise."""

SPACES = ("dup:2,sub:2", "del:2,sub:2", "del:2,dup:2", "dup:2,del:2,sub:2")
"""ARC's spaces on SST2, and all three together."""


@final
@dataclass(frozen=True, kw_only=True)
class TextTable(Configuration):
    """Configuration of a table of certified sentences: objectives, seeds, spaces.

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
        max_strings: spaces of so few strings (counted with repetitions) are enumerated, to check
            the exact verdicts;
        n_enumerated: but no more than this many in each space.
        time_limit: seconds a sentence.
    """

    objectives: tuple[str, ...] = OBJECTIVES
    ks: tuple[int, ...] = (1, 8)
    seeds: tuple[int, ...] = (0, 1, 2)
    spaces: tuple[str, ...] = SPACES
    defend: str = SPACES[-1]
    training: TextTraining = field(default_factory=lambda: TextTraining(steps=600))
    model: tuple[tuple[str, Any], ...] = ()
    limit: int = whole(0, least=0)
    n_interval: int = whole(0, least=0)
    max_strings: int = whole(2000, least=0)
    n_enumerated: int = whole(100, least=0)
    time_limit: float = number(2.0, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("objectives", "ks", "seeds", "spaces"):
            object.__setattr__(self, name, check_distinct(name, getattr(self, name)))
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
    **how: Unpack[RunOptions],
) -> pd.DataFrame:
    """Train and certify everything, one row per objective, k, seed and space.

    Also written as ``table.parquet``.

    It is a sweep (`run_sweep`): what is done is kept, several processes may work on one folder,
    folders of several machines can be merged, and a table of more objectives or seeds finds what is
    there.

    Columns: objective, k, seed, space, clean (accuracy), certified, falsified, undecided (shares of
    all sentences, by the exact certifier), interval (certified share), enumerated (sentences whose
    space was enumerated), disagreements (verdicts of enumeration and exact that differ among
    those), median_ms, p95_ms, interval_ms (median), steps, seconds.

    Args:
        corpus: sentences to train on, and to certify.
        synonyms: of words.
        folder: where to put everything.
        table: what to do; None for the default.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.

    Raises:
        FailedRunsError: a run raised; the others are done.
    """
    table = table or TextTable()
    sweep = Sweep(
        grid={"k": table.ks, "objective": table.objectives},
        seeds=table.seeds,
        experiment=SentencesExperiment.name,
    )
    experiment = SentencesExperiment(corpus, synonyms, table)
    run_sweep(sweep, folder, experiment=experiment, **how)

    def read(run: dict[str, Any], place: Path) -> list[dict[str, Any]]:
        shared = {name: run[name] for name in ("objective", "k", "seed", "clean", "steps")}
        shared["seconds"] = run["train_seconds"]
        return [{**shared, "space": on, **found} for on, found in read_measures(place).items()]

    frame = pd.DataFrame(itertools.chain.from_iterable(of_each(load_runs(folder), read)))
    write_tables(folder, {"table": frame})
    return frame


@final
@dataclass(frozen=True)
class SentencesExperiment:
    """Train a classifier of sentences with one objective, and certify it against a table's spaces.

    Parameters of a point: ``objective`` and ``k`` (synonyms a word). Metrics: clean (accuracy),
    steps, train_seconds and, for each space, the share that is certified. The run's folder holds
    the model.

    Attributes:
        corpus: sentences to train on, and to certify.
        synonyms: of words.
        table: spaces, options, how closely to look; its objectives, ks and seeds play no part.
    """

    corpus: Corpus
    synonyms: dict[str, tuple[str, ...]]
    table: TextTable
    name: ClassVar[str] = "sentences"

    def identity(self, point: Point) -> dict[str, Any]:
        """Data, options and spaces, in full."""
        asked = replace(self.table, objectives=(point["objective"],), ks=(point["k"],)).to_dict()
        del asked["seeds"]
        return {"code": _CODE, "table": asked, "data": self._data}

    @cached_property
    def _data(self) -> str:
        rows = [asdict(row) for row in (*self.corpus.train, *self.corpus.test)]
        return sha256([rows, sorted(self.synonyms.items())])

    def run(self, point: Point, seed: int, folder: Path) -> dict[str, Any]:
        """Train, unless the folder has the model already, and certify, space by space."""
        table, k = self.table, point["k"]
        config = table.config(build_words(self.corpus.train))
        which = {"point": dict(point), "seed": seed, "data": self._data}
        if not _is_of(folder / "training.json", which):
            options = TextTraining(**{**table.training.to_dict(), "objective": point["objective"]})
            space = text_space(table.defend, config, self.synonyms, k)
            model, curve = train_text(
                config, self.corpus.train, options, space=space, seed=seed, progress=False
            )
            save_text_model(model, folder)
            write_json(folder / "training.json", {"of": which, "curve": curve})
        model, curve = load_text_model(folder), read_json(folder / "training.json")["curve"]
        test = self.corpus.test[: table.limit or None]
        measured = {}
        for text in table.spaces:
            file = folder / f"{text.replace(':', '').replace(',', '-')}.json"
            of = {"weights": weights_digest(model), "space": text}
            if not _is_of(file, of):
                found = _measure(model, test, text_space(text, config, self.synonyms, k), table)
                write_json(file, {"of": of, "found": found})
            measured[text] = read_json(file)["found"]
        write_measures(folder, measured)
        certified = {f"certified {text}": found["certified"] for text, found in measured.items()}
        trained = {"steps": curve[-1]["step"], "train_seconds": curve[-1]["seconds"]}
        return {"clean": accuracy(model, test), **trained, **certified}


def _is_of(file: Path, what: dict[str, Any]) -> bool:
    """Whether a file is there and says that it is of that.

    One that was copied from another run is made again.
    """
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
    small = [i for i, row in enumerate(rows) if space.n_edit_paths(row) <= table.max_strings][
        : table.n_enumerated
    ]
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


def summarise(rows: pd.DataFrame, *, n_bootstrap: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Means over seeds, 95 % percentile bootstrap intervals: a row per k, space, objective."""
    rng = np.random.default_rng(seed)
    found = []
    for (k, space, objective), group in rows.groupby(["k", "space", "objective"], sort=False):
        row: dict[str, Any] = {"k": k, "space": space, "objective": objective, "n": len(group)}
        for name in ("clean", "certified", "interval"):
            over_seeds = mean(group[name].to_numpy(), n_bootstrap, rng)
            row |= {
                name: over_seeds.value,
                f"{name}_low": over_seeds.low,
                f"{name}_high": over_seeds.high,
            }
        for name in ("undecided", "median_ms", "p95_ms", "interval_ms", "steps"):
            row[name] = group[name].mean()
        row |= {
            "enumerated": int(group["enumerated"].sum()),
            "disagreements": int(group["disagreements"].sum()),
        }
        found.append(row)
    return pd.DataFrame(found)


def _share(certificates: Sequence[Certificate], status: str) -> float:
    return (
        float(np.mean([certificate.status == status for certificate in certificates]))
        if certificates
        else 0.0
    )
