"""Is contrastive regularisation a kind of certified training?

Wen et al. 2023 (Eq. 22) add a term that asks for the same logits with and without a block of
matched brackets before a string. Here one-layer models are trained with several weights of that
term, and every insertion of matched brackets is searched exactly, by shortest paths: how many right
answers are proved to survive them all, and how far can a logit be moved?

    python demos/contrast_and_certify.py --seeds 8
"""

import argparse
from dataclasses import replace
from pathlib import Path

from tl_dyck import run_study
from tl_dyck.intervals import mean
from tl_dyck.studies import Measurement, StudyConfig
from tl_dyck.studies.tables import markdown, percents

MEASURES = {
    "proved_share": "proved",
    "refuted_share": "refuted",
    "logit_change": "largest logit change",
    "balance_violation": "balance violation",
    "long_accuracy": "accuracy at 400-500",
    "accuracy": "accuracy",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.01, 0.1, 1.0])
    parser.add_argument("--family", default="minimal-onehot")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--prefixes", type=int, default=8, help="certified per model")
    parser.add_argument("--out", default="results/contrast")
    parser.add_argument("--jobs", type=int, help="worker processes; by default one per core")
    options = parser.parse_args()

    found = {}
    for weight in options.weights:
        measurement = Measurement(n_certified=options.prefixes, decided_length=0)
        config = StudyConfig(
            families=(options.family,), seeds=tuple(range(options.seeds)), measurement=measurement
        )
        # all make the same number of steps, so that only the weight differs
        training = replace(
            config.training,
            steps=options.steps,
            min_steps=0,
            target=None,
            contrastive_weight=weight,
        )
        config, folder = replace(config, training=training), f"{options.out}/weight-{weight:g}"
        found[weight] = run_study(config, folder, n_jobs=options.jobs).models

    print(f"\n{options.family}, {options.seeds} seeds; mean [95 % interval over seeds]\n")
    print("weight   " + "".join(f"{title:>26}" for title in MEASURES.values()))
    rows = {}
    for weight, models in found.items():
        rows[weight] = {name: mean(models[name].to_numpy(float)) for name in MEASURES}
        cells = [estimate.text(".3f") for estimate in rows[weight].values()]
        print(f"{weight:<9g}" + "".join(f"{cell:>26}" for cell in cells))

    head = ["weight λ", "largest change of a logit", "balance violation β", "accuracy at 400–500"]
    table = [
        [
            f"{weight:g}",
            row["logit_change"].text(),
            row["balance_violation"].text(".3f"),
            percents(row["long_accuracy"], ".0f"),
            f"{row['proved_share'].value:.0%}",
        ]
        for weight, row in rows.items()
    ]
    text = markdown([*head, "answers proved to survive"], table)
    Path(options.out, "table.md").write_text(text, encoding="utf-8")

    plain, most = rows[min(rows)], rows[max(rows)]
    less = most["logit_change"].high < plain["logit_change"].low
    more = most["proved_share"].low > plain["proved_share"].high
    print(
        "\nWith the largest weight the worst change of a logit is "
        f"{'' if less else 'not clearly '}smaller, and {'' if more else 'not clearly '}more "
        "answers are proved to survive every insertion."
    )


if __name__ == "__main__":
    main()
