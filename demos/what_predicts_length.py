"""What predicts length generalisation?

Trains many seeds of a model with a minimal first layer and measures accuracy after a closing
bracket, where the answer takes a stack, at lengths 400-500. Beside it: the accuracy that two
moments of the numbers of matched pairs predict, through all of the model; that which the drift of
matched pairs along one axis predicts in closed form; the drift; the balance violation of Wen et
al. 2023; and the exact probability of error on all prefixes up to a length. Rank correlations over
seeds, with 95 % intervals.

    python demos/what_predicts_length.py --seeds 40
"""

import argparse

import numpy as np

from tl_dyck import accuracy_at_length, certify_language, pair_drift, run_study
from tl_dyck.intervals import correlation, mean
from tl_dyck.studies import Measurement, StudyConfig


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="minimal-onehot")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--length", type=int, default=28, help="all prefixes up to this one")
    parser.add_argument("--out", default="results/length")
    parser.add_argument("--jobs", type=int, help="worker processes; by default one per core")
    options = parser.parse_args()

    measurement = Measurement(n_certified=0, decided_length=0)
    config = StudyConfig(
        families=(options.family,), seeds=tuple(range(options.seeds)), measurement=measurement
    )
    study = run_study(config, f"{options.out}/{options.family}", n_jobs=options.jobs)
    rows = []
    for row in study.models.itertuples():
        model = study.run(row.family, row.seed).model
        lengths, law = study.task.closing_lengths(long=True), study.task.distribution
        forecast, drift = accuracy_at_length(model, lengths, law), pair_drift(model, law)
        exact = certify_language(model, study.task, options.length)
        wrong = 1 - exact.accuracy.high if exact.accuracy else np.nan
        rows.append(
            {
                "accuracy predicted by moments": forecast.after_close,
                "accuracy predicted from drift": drift.accuracy(450),
                "drift": float(drift),
                "balance violation": row.balance_violation,
                f"exact error up to {options.length}": wrong,
            }
        )
        print(
            f"seed {row.seed:>2}: measured {row.long_accuracy_after_close:.3f}, predicted "
            f"{forecast.after_close:.3f}, from drift {drift.accuracy(450):.3f}; 75 % at length "
            f"{drift.length_at():,.0f}; proved up to length {exact.proved_to}"
        )
    measured = study.models["long_accuracy_after_close"].to_numpy(float)
    predicted, drifted = (
        np.array([each[f"accuracy predicted {how}"] for each in rows])
        for how in ("by moments", "from drift")
    )
    print(f"\n{options.family}, {options.seeds} seeds, accuracy after a closing bracket at 400-500")
    for title, values in (
        ("measured", measured),
        ("predicted by moments", predicted),
        ("distance", abs(measured - predicted)),
        ("predicted from drift", drifted),
        ("distance", abs(measured - drifted)),
    ):
        found = mean(values)
        print(f"  {title:<32} {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]")
    print("\nrank correlation with what is measured")
    for title in rows[0]:
        found = correlation(np.array([each[title] for each in rows], float), measured, 2000)
        print(f"  {title:<32} {found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]")


if __name__ == "__main__":
    main()
