"""Which training makes models of two layers that are right on every prefix?

Trains seeds of `gpt` in several ways. Of each it decides up to which length every prefix gets its
right closing bracket: all prefixes of up to 11 brackets are run, and longer ones are decided length
by length, along paths of profiles, until one is wrong or time is up. What is done is kept, so that
an interrupted call goes on:

    python demos/two_layers_proved.py --seeds 40
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tl_dyck import certify_language, load_task, train_seeds
from tl_dyck.certify.deadline import by_work
from tl_dyck.intervals import mean
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.files import read_json, write_json
from tl_dyck.studies.tables import markdown
from tl_dyck.training import TrainConfig

TRAININGS = {
    "99": ("until 99 % (300 to 1,000 steps)", {}),
    "3000": ("3,000 steps", {"steps": 3000, "target": None}),
    "1000": ("1,000 steps", {"steps": 1000, "target": None}),
    "1000-decay-0.1": (
        "1,000 steps, weight decay 0.1",
        {"steps": 1000, "target": None, "weight_decay": 0.1},
    ),
}
HEAD = ("training", "seeds", "proved right up to: mean", "seeds by length", "right to 11", "after")
RUN = 11  # up to here all prefixes are run


@one_thread()
@by_work()
def decide(model, task, longest, seconds):
    """Up to which length every prefix is right, what comes after it, and processor seconds."""
    started = time.process_time()
    found = certify_language(model, task, min(RUN, longest), until="refuted")
    proved, after = found.proved_to, "wrong" if found.status == "refuted" else ""
    while not after and proved < longest:
        how = {"most_run": 0, "until": "refuted", "time_limit": seconds}
        found = certify_language(model, task, [proved + 1], **how)
        if found.status == "proved":
            proved += 1
        else:
            after = {"refuted": "wrong"}.get(found.status, "open")
    seconds = round(time.process_time() - started, 1)
    return {"proved_to": proved, "after": after or "right", "seconds": seconds}


def row(name, models, longest):
    """A line of the table, and what is known of those that are right to 11."""
    lengths = [each["proved_to"] for each in models]
    counts = ", ".join(f"{n}: {number}" for n, number in sorted(Counter(lengths).items()))
    late = [each for each in models if each["proved_to"] >= RUN]
    after = Counter(each["after"] for each in late)
    said = [f"{after[what]} {what}" for what in ("right", "wrong", "open") if after[what]]
    if late:
        said.append(f"{np.median([each['seconds'] for each in late]):.0f} s each")
    average = mean(np.array(lengths, dtype=float)).text(".1f")
    print(f"\n{name}: {average}; {counts}; right to {RUN}: {len(late)}; then {', '.join(said)}")
    return [name, str(len(models)), average, counts, str(len(late)), ", ".join(said) or "–"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--length", type=int, default=16, help="the longest that is decided")
    parser.add_argument("--seconds", type=float, default=60, help="at most, for a length")
    parser.add_argument("--trainings", nargs="+", choices=list(TRAININGS), default=list(TRAININGS))
    parser.add_argument("--steps", type=int, help="instead of those of the trainings")
    parser.add_argument("--out", type=Path, default="results/two-layers")
    parser.add_argument("--jobs", type=int, help="worker processes; by default one per core")
    options = parser.parse_args()

    task, rows = load_task("dyck-2-4"), []
    for key in options.trainings:
        name, how = TRAININGS[key]
        how = how | ({"steps": options.steps} if options.steps else {})
        folder, file = options.out / key, options.out / f"{key}.json"
        known = read_json(file) if file.exists() else {}
        results = train_seeds(
            "gpt",
            task,
            seeds=options.seeds,
            options=TrainConfig(**how),
            folder=folder,
            n_jobs=options.jobs,
            progress=False,
        )
        for result in results:
            if str(result.seed) not in known:
                known[str(result.seed)] = decide(
                    result.model, task, options.length, options.seconds
                )
                write_json(file, known)
                print(f"{name}, seed {result.seed}: {json.dumps(known[str(result.seed)])}")
        rows.append(row(name, [known[str(seed)] for seed in range(options.seeds)], options.length))
    (options.out / "table.md").write_text(markdown(HEAD, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
