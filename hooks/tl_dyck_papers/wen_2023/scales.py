"""At which scale to reproduce, and with which models: one table, before any training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

from tl_dyck.kit.configuration import parameters_of
from tl_dyck.runs.spec import Point, Sweep
from tl_dyck.studies.reproduction import Size
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig
from tl_dyck_papers.wen_2023.measure import PaperMeasurement

#: Models that see as many strings as those that are regularised.
DOUBLED = "minimal-onehot-batch-doubled"
#: The longest string that the regularisation reads: control of its extra length.
READ = 34
#: Learning rates of Appendix D.1.
RATES = (3e-4, 3e-3)
#: Strengths of AdamW's weight decay, which falls to 0 in Corollary 2.
DECAYS = (0.001, 0.01, 0.1)


@final
@dataclass(frozen=True, kw_only=True)
class Scale(Size):
    """Size of a reproduction: numbers of models and of measurements.

    Attributes:
        table_seeds: models of a cell of Table 1.
        contrastive_seeds: models for each weight of the contrastive regularisation.
        weights: λ of the contrastive regularisation, 0 among them: powers of ten.
        lengths: N, longest training strings for Theorem 2, besides the task's own.
        to_the_end: steps of groups that are not stopped early.
        n_bootstrap: resamples for the interval of a correlation.
        measurement: on every model.
    """

    table_seeds: int = 3
    contrastive_seeds: int = 6
    weights: tuple[float, ...] = (0.0, 0.01, 0.1, 1.0)
    lengths: tuple[int, ...] = (8, 12, 18, 34)
    to_the_end: int = 600
    n_bootstrap: int = 2000
    measurement: PaperMeasurement = field(default_factory=PaperMeasurement)

    def sweep(self) -> Sweep:
        """The runs: a point for each group of models, with as many seeds as the group has."""
        return Sweep(list=groups_of(self), experiment="paper")

    def with_seeds(self, seeds: int) -> Scale:
        """The same with as many models in each group."""
        return replace(self, seeds=seeds, table_seeds=seeds, contrastive_seeds=seeds)


_PAPER = Scale(
    name="paper",
    seeds=40,
    table_seeds=40,
    contrastive_seeds=40,
    weights=(0.0, 0.001, 0.01, 0.1, 1.0),
    lengths=(6, 8, 12, 18, READ, 40, 60),
    to_the_end=2000,
    n_bootstrap=4000,
    measurement=PaperMeasurement(n_accuracy=2000, n_long=500, n_strings=2000),
)

#: Minutes, an hour or two, and the paper's 40 seeds.
SCALES = {
    "quick": Scale(),
    "full": replace(
        _PAPER,
        name="full",
        seeds=12,
        table_seeds=8,
        contrastive_seeds=12,
        to_the_end=1000,
        n_bootstrap=2000,
    ),
    "paper": _PAPER,
}


def contrastive_name(mode: str, weight: float) -> str:
    """The group of models trained with a weight of the regularisation."""
    return f"minimal-onehot-{mode}-weight-{weight:g}"


def length_name(longest: int) -> str:
    """The group of models trained on strings up to a length."""
    return f"minimal-onehot-to-{longest}"


def decay_name(strength: float) -> str:
    """The group of models trained with a strength of weight decay; 0 is none."""
    return f"minimal-onehot-decay-{strength:g}" if strength else to_the_end("minimal-onehot")


def to_the_end(family: str) -> str:
    """The group of a family that is trained for a fixed number of steps."""
    return (
        contrastive_name("complete", 0.0) if family == "minimal-onehot" else f"{family}-to-the-end"
    )


def length_points(scale: Scale) -> list[tuple[int, str]]:
    """Longest training strings, and the groups trained on them, alike otherwise."""
    own = max(load_task("dyck-2-4").train_lengths)
    points = [(longest, length_name(longest)) for longest in scale.lengths]
    return sorted([*points, (own, contrastive_name("complete", 0.0))])


def groups_of(scale: Scale) -> list[Point]:
    """Every group of models that a scale asks for: points of a sweep, with their numbers of seeds.

    The models of a group differ in their seed alone.
    """
    return [
        *_single(scale),
        *_table(scale),
        *_contrastive(scale),
        *_lengths(scale),
        *_decays(scale),
    ]


def _group(
    scale: Scale,
    *,
    name: str,
    family: str,
    seeds: int,
    task: str = "dyck-2-4",
    training: TrainConfig | None = None,
    longest: int | None = None,
    watched: bool = False,
    forecast: bool = False,
    **overrides: Any,
) -> Point:
    """A group: of a family with other fields, on a task that is cut or extended to `longest`."""
    other: Point = {}
    if longest is not None:
        lengths = list(range(2, longest + 1, 2))
        other = {"task.name": f"{task}-to-{longest}", "task.train_lengths": lengths}
    measured = replace(scale.measurement, watched=watched, forecast=forecast)
    return {
        **{"group": name, "model": family, "task": task, "seeds": seeds, **other},
        **{f"model.{field}": value for field, value in overrides.items()},
        **parameters_of("training", training or TrainConfig(min_steps=500)),
        **parameters_of("measure", measured),
    }


def _single(scale: Scale) -> Iterator[Point]:
    """Families as they are, and with one thing changed."""
    group = partial(_group, scale, seeds=scale.seeds)
    for name in _AS_THEY_ARE:
        yield group(name=name, family=name)
    end = _to_the_end(scale)
    long = replace(end, steps=2 * end.steps)
    for name in _AS_THEY_ARE:
        if name != "minimal-onehot":  # these are among the weights of the regularisation
            training = long if name == "gpt" else end
            minimal = name.startswith("minimal")
            yield group(name=to_the_end(name), family=name, training=training, forecast=minimal)
    for rate in RATES:
        training = replace(long, learning_rate=rate)
        yield group(name=f"gpt-rate-{rate:g}", family="gpt", training=training)
    for layers in (2, 3):
        yield group(name=f"gpt-heads-4-layers-{layers}", family="gpt", n_layers=layers, n_heads=4)
    for family, std in (("gpt", 0.02), ("minimal-onehot", 0.3)):
        yield group(name=f"{family}-init-{std:g}", family=family, initializer_range=std)
    for family in ("figure2-onehot", "figure2-split", "figure2-yao"):
        for rate in (1e-2, 3e-3):
            training = TrainConfig(learning_rate=rate, min_steps=500)
            yield group(name=f"{family}-rate-{rate:g}", family=family, training=training)
    for family in ("gpt", "gpt-linear"):
        yield group(name=f"{family}-prefix", family=family, task="dyck-2-4-prefix")


def _table(scale: Scale) -> Iterator[Point]:
    """The cells of Table 1 that are not among the families as they are."""
    group = partial(_group, scale, family="gpt", seeds=scale.table_seeds)
    for n_types, depth, layers in itertools.product((2, 3), (4, 8), (2, 3)):
        if (n_types, depth, layers) != (2, 4, 2):  # which is "gpt"
            name = f"gpt-{n_types}-{depth}-layers-{layers}"
            yield group(name=name, task=f"dyck-{n_types}-{depth}", n_layers=layers)


def _contrastive(scale: Scale) -> Iterator[Point]:
    """Weights of the contrastive regularisation, on complete strings and on prefixes."""
    group = partial(_group, scale, family="minimal-onehot", seeds=scale.contrastive_seeds)
    for mode, task in (("complete", "dyck-2-4"), ("prefix", "dyck-2-4-prefix")):
        for weight in scale.weights:
            training = replace(_to_the_end(scale), contrastive_weight=weight)
            yield group(
                name=contrastive_name(mode, weight),
                task=task,
                training=training,
                watched=mode == "complete" and weight == 0,
                forecast=mode == "complete" and weight in (0, 1),
            )
    twice = replace(_to_the_end(scale), batch_size=2 * TrainConfig().batch_size)
    yield group(name=DOUBLED, training=twice)


def _lengths(scale: Scale) -> Iterator[Point]:
    """Longest training strings, for Theorem 2."""
    group = partial(_group, scale, family="minimal-onehot", seeds=scale.seeds, watched=True)
    for longest in scale.lengths:
        yield group(name=length_name(longest), training=_to_the_end(scale), longest=longest)


def _decays(scale: Scale) -> Iterator[Point]:
    """Strengths of weight decay, for Corollary 2."""
    group = partial(_group, scale, family="minimal-onehot", seeds=scale.seeds)
    for strength in DECAYS:
        training = replace(_to_the_end(scale), weight_decay=strength)
        yield group(name=decay_name(strength), training=training)


def _to_the_end(scale: Scale) -> TrainConfig:
    return TrainConfig(steps=scale.to_the_end, target=None, check_every=50, check_size=200)


_AS_THEY_ARE = (
    "gpt",
    "gpt-uniform",
    "eq6",
    "eq49",
    "minimal-onehot",
    "minimal-split",
    "minimal-yao",
    "gpt-linear",
)
