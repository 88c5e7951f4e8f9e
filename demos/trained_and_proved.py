"""Which training makes models that are right on every string?

Trains many seeds of a model with a minimal first layer in four ways, for the same number of steps:
plainly; with the contrastive regularisation of Wen et al. 2023 (Eq. 22); with a regularisation of
what matched pairs add in a long string, in closed form from the weights, along the axis that tells
two answers apart; and with the same in all directions. Of every model it measures accuracy after a
closing bracket at lengths 400-500, and decides by `certify_language` whether every prefix gets its
right closing bracket, first up to length 28 and then up to 60. What is proved up to the longest
length is written as a proof that anyone can check:

    python demos/trained_and_proved.py --seeds 40
    tl-dyck check results/proved/minimal-onehot/proofs/*
"""

import argparse
from dataclasses import replace
from pathlib import Path

from tl_dyck import (
    accuracy_at_length,
    certify_language,
    pair_drift,
    prove_language,
    run_study,
)
from tl_dyck.certify.deadline import by_work
from tl_dyck.intervals import correlation, mean
from tl_dyck.kit.environment import one_thread
from tl_dyck.studies import Measurement, StudyConfig
from tl_dyck.studies.tables import lengths, markdown, percents

TRAININGS = {
    "plain": {},
    "Eq. 22, λ = 1": {"contrastive_weight": 1.0},
    "drift, one axis": {"drift_weight": 0.03, "drift_anywhere": False},
    "drift, weight 0.003": {"drift_weight": 0.003},
    "drift, weight 0.03": {"drift_weight": 0.03},
}
MEASURES = {
    "long_accuracy_after_close": ("accuracy after a closing bracket at 400-500", ".3f"),
    "forecast": ("predicted by accuracy_at_length", ".3f"),
    "predicted": ("predicted by pair_drift", ".3f"),
    "accuracy_after_close": ("the same in distribution", ".4f"),
    "entropy_gap": ("nats over the floor", ".4f"),
    "balance_violation": ("balance violation", ".3f"),
    "proved_to": ("proved up to length", ".1f"),
}
#: Of the table.
HEAD = (
    "accuracy after a closing bracket at 400–500",
    "predicted by `accuracy_at_length`",
    "by `pair_drift`",
    "nats over the floor",
    "balance violation β",
    "every prefix proved up to length",
)


@one_thread()
@by_work()
def provable_length(model, task, longest, seconds):
    """The greatest length, of those asked about, up to which every prefix is proved right."""
    first = certify_language(model, task, min(28, longest), time_limit=seconds)
    if first.status != "proved" or longest <= 28:
        return first.proved_to
    return certify_language(model, task, longest, time_limit=seconds).proved_to


def _tie(models, key):
    """Rank correlation of a measure with the provable length; – if one is constant."""
    x, y = (models[name].to_numpy(float) for name in (key, "proved_to"))
    if len(set(x)) == 1 or len(set(y)) == 1:
        return "–"
    return correlation(x, y, 2000).text()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="minimal-onehot")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--length", type=int, default=60, help="the longest that is decided")
    parser.add_argument("--seconds", type=float, default=60, help="at most, per decision")
    parser.add_argument("--trainings", nargs="+", choices=list(TRAININGS), default=list(TRAININGS))
    parser.add_argument("--out", default="results/proved")
    parser.add_argument("--jobs", type=int, help="worker processes; by default one per core")
    options = parser.parse_args()

    rows = []
    for place, name in enumerate(options.trainings):
        config = StudyConfig(
            families=(options.family,),
            seeds=tuple(range(options.seeds)),
            measurement=Measurement(n_certified=0, n_long=100, decided_length=0),
        )
        training = replace(
            config.training, steps=options.steps, min_steps=0, target=None, **TRAININGS[name]
        )
        folder = Path(options.out) / options.family / str(list(TRAININGS).index(name))
        study = run_study(replace(config, training=training), folder, n_jobs=options.jobs)
        models = study.models
        trained = [study.run(row.family, row.seed) for row in models.itertuples()]
        models["forecast"] = [accuracy_at_length(run.model).after_close for run in trained]
        models["predicted"] = [pair_drift(run.model).accuracy(450) for run in trained]
        models["proved_to"] = [
            provable_length(run.model, study.task, options.length, options.seconds)
            for run in trained
        ]
        proofs = Path(options.out) / options.family / "proofs"
        for run, row in zip(trained, models.itertuples(), strict=True):
            if row.proved_to == options.length:
                file = f"{list(TRAININGS).index(name)}-seed-{row.seed}.proof"
                prove_language(run.model, study.task, options.length).save(proofs / file)
        found = {key: mean(models[key].to_numpy(float)) for key in MEASURES}
        proved = sorted(models["proved_to"].tolist())
        shares = ("long_accuracy_after_close", "forecast", "predicted")
        numbers = [found["entropy_gap"].text(".4f"), found["balance_violation"].text(".3f")]
        rows.append([name, *(percents(found[key]) for key in shares), *numbers, lengths(proved)])
        if place == 0:
            print(f"{options.family}, {options.seeds} seeds; mean [95 % interval over seeds]")
        print(f"\n{name}")
        for key, (title, form) in MEASURES.items():
            print(f"  {title:<46} {found[key].text(form)}")
        print(f"  provable lengths: {lengths(proved)}")
        for key in ("long_accuracy_after_close", "balance_violation"):
            print(f"  rank correlation with {MEASURES[key][0]:<24} {_tie(models, key)}")
    text = markdown(["training", *HEAD], rows)
    (Path(options.out) / options.family / "table.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
