"""The experiment "sentences": train a classifier of sentences, and certify it against edits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd

from tl_dyck.certify import Certificate, PerturbationSpace
from tl_dyck.certify.deadline import by_work
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_distinct
from tl_dyck.kit.configuration import Configuration, drawn, nested, number
from tl_dyck.kit.environment import environment
from tl_dyck.kit.files import read_json, sha256, write_json
from tl_dyck.kit.verdicts import read_verdict
from tl_dyck.models.storage import weights_digest
from tl_dyck.runs.analysis import of_each
from tl_dyck.runs.results import load_runs
from tl_dyck.runs.spec import Point, SweepError
from tl_dyck.studies.measurement import read_measures, write_measures
from tl_dyck_text.certificates import certify_sentences
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.edits import text_space
from tl_dyck_text.model import TextTransformer, load_text_model, save_text_model
from tl_dyck_text.recipe import Ingredients, TextRecipe
from tl_dyck_text.training import accuracy, train_text

_CODE = "tl_dyck.sentences/4"
"""Of the code below: another number where it trains or measures otherwise."""

SPACES = ("dup:2,sub:2", "del:2,sub:2", "del:2,dup:2", "dup:2,del:2,sub:2")
"""ARC's spaces on SST2, and all three together."""

_MOST_STRINGS, _MOST_ENUMERATED = 2000, 100
"""Spaces of so few strings (counted with repetitions) are enumerated, to check the exact verdicts,
but no more than this many of each text."""


@final
@dataclass(frozen=True, kw_only=True)
class SentencesMeasurement(Configuration):
    """How closely to look at a classifier of sentences.

    Attributes:
        spaces: what is certified.
        limit: sentences of the test set that are certified; 0 for all.
        n_interval: of these, how many also by `interval` (0 for all); it is the slowest.
        time_limit: seconds of work a sentence: work is counted, so that no share depends on how
            busy the machine is.
    """

    spaces: tuple[str, ...] = SPACES
    limit: int = drawn(0, least=0)
    n_interval: int = drawn(0, least=0)
    time_limit: float = number(2.0, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "spaces", check_distinct("spaces", self.spaces))


@final
class SentencesExperiment:
    """Train a classifier of sentences, and certify it against spaces of edits.

    Parameters of a point: the fields of `TextRecipe` (``data``, ``synonyms``, ``space``, ``k``,
    ``training.<field>``, ``model.<field>``), and ``measure.<field>`` of `SentencesMeasurement`.
    Metrics: clean (accuracy), steps, train_seconds, enumerated (sentences whose space was
    enumerated) and disagreements (verdicts of enumeration and `exact` that differ), of all spaces,
    and for each space the share that is proved. The run's folder holds the model, and for each
    space what `sentences_table` reads.
    """

    name: ClassVar[str] = "sentences"

    @checked
    def prepare(self, point: Point) -> SentencesJob:
        """Read the recipe, its data, and what is measured; errors name the parameter."""
        parts: dict[str, Any] = nested(point)
        measurement = SentencesMeasurement.from_dict(parts.pop("measure", {}), "measure.")
        if "data" not in parts:
            raise ValueError(
                "the experiment 'sentences' needs the parameter 'data': a folder with train.tsv "
                "and dev.tsv, or sst2"
            )
        recipe = TextRecipe.from_dict(parts)
        return SentencesJob(recipe, recipe.read(), measurement)


@final
@dataclass(frozen=True)
class SentencesJob:
    """A point of `SentencesExperiment`, read."""

    recipe: TextRecipe
    read: Ingredients
    measurement: SentencesMeasurement

    def identity(self) -> dict[str, Any]:
        """Data, options and spaces, in full."""
        asked = _in_full(self.recipe, self.read)
        return {"code": _CODE, "recipe": asked, "measure": self.measurement.to_dict()}

    @checked
    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        """Train, unless the folder has the model already, and certify, space by space."""
        recipe, read, measurement = self.recipe, self.read, self.measurement
        which = {"recipe": _in_full(recipe, read), "seed": seed}
        if not _is_of(folder / "training.json", which):
            how: dict[str, Any] = {"space": read.space, "seed": seed, "progress": False}
            model, curve = train_text(read.config, read.corpus.train, recipe.training, **how)
            save_text_model(model, folder)
            kept = {"of": which, "curve": curve, "environment": environment()}
            write_json(folder / "training.json", kept)
        model, curve = load_text_model(folder), read_json(folder / "training.json")["curve"]
        test = read.corpus.test[: measurement.limit or None]
        measured = {}
        for text in measurement.spaces:
            file = folder / f"{text.replace(':', '').replace(',', '-')}.json"
            of = {"weights": weights_digest(model), "space": text}
            if not _is_of(file, of):
                space = text_space(text, read.config, read.synonyms, recipe.k)
                write_json(file, {"of": of, "found": _measure(model, test, space, measurement)})
            measured[text] = _said(read_json(file)["found"])
        write_measures(folder, measured)
        trained = {"steps": curve[-1]["step"], "train_seconds": curve[-1]["seconds"]}
        sums = {
            name: sum(found[name] for found in measured.values())
            for name in ("enumerated", "disagreements")
        }
        proved = {f"proved {text}": found["proved"] for text, found in measured.items()}
        return {"clean": accuracy(model, test), **trained, **sums, **proved}


@checked
def sentences_table(folder: str | Path) -> pd.DataFrame:
    """What a sweep of classifiers found, one row per run and space.

    Columns: objective, k, seed, space, clean (accuracy), proved, refuted, open (shares of all
    sentences, by the exact certifier), interval (proved share), enumerated (sentences whose
    space was enumerated), disagreements (verdicts of enumeration and exact that differ among
    those), median_ms, p95_ms, interval_ms (median), steps, seconds.

    Args:
        folder: of a sweep of the experiment "sentences".
    """

    def read(run: dict[str, Any], place: Path) -> list[dict[str, Any]]:
        shared = {"objective": run.get("training.objective", "clean"), "k": run.get("k", 1)}
        if "clean" not in run:
            raise SweepError(f"{str(folder)!r} is no sweep of classifiers of sentences")
        shared |= {name: run[name] for name in ("seed", "clean", "steps")}
        shared["seconds"] = run["train_seconds"]
        return [
            {**shared, "space": on, **_said(found)} for on, found in read_measures(place).items()
        ]

    return pd.DataFrame(itertools.chain.from_iterable(of_each(load_runs(folder), read)))


def _in_full(recipe: TextRecipe, read: Ingredients) -> dict[str, Any]:
    """A recipe with its sentences and synonyms, wherever they are."""
    rows = [asdict(row) for row in (*read.corpus.train, *read.corpus.test)]
    data = sha256([rows, sorted(read.synonyms.items())])
    return {**recipe.to_dict(), "data": data, "synonyms": bool(recipe.synonyms)}


def _said(found: dict[str, Any]) -> dict[str, Any]:
    """What was found in a space, in today's words."""
    return {read_verdict(name): value for name, value in found.items()}


def _is_of(file: Path, what: dict[str, Any]) -> bool:
    """Whether a file is there and says that it is of that.

    One that was copied from another run is made again.
    """
    saved = read_json(file) if file.exists() else None
    return isinstance(saved, dict) and saved.get("of") == what


@by_work()
def _measure(
    model: TextTransformer,
    test: Sequence[Sentence],
    space: PerturbationSpace,
    asked: SentencesMeasurement,
) -> dict[str, Any]:
    """One space, all sentences, by all certifiers."""
    exact = certify_sentences(model, test, space, time_limit=asked.time_limit)
    some = test[: asked.n_interval or None]
    boxes = certify_sentences(model, some, space, certifier="interval", time_limit=asked.time_limit)
    rows = [model.text.encode(sentence.text) for sentence in test]
    small = [i for i, row in enumerate(rows) if space.n_edit_paths(row) <= _MOST_STRINGS]
    small = small[:_MOST_ENUMERATED]
    listed = certify_sentences(model, [test[i] for i in small], space, certifier="exhaustive")
    differ = sum(exact[i].status != found.status for i, found in zip(small, listed, strict=True))
    ms = np.array([certificate.seconds for certificate in exact]) * 1e3
    return {
        "proved": _share(exact, "proved"),
        "refuted": _share(exact, "refuted"),
        "open": _share(exact, "open"),
        "interval": _share(boxes, "proved"),
        "enumerated": len(small),
        "disagreements": differ,
        "median_ms": float(np.median(ms)),
        "p95_ms": float(np.quantile(ms, 0.95)),
        "interval_ms": float(np.median([certificate.seconds for certificate in boxes]) * 1e3),
    }


def _share(certificates: Sequence[Certificate], status: str) -> float:
    return float(np.mean([each.status == status for each in certificates])) if certificates else 0.0
