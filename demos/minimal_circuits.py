"""The fewest heads that answer as the model does on every prefix, and what methods put there.

Run it: ``python demos/minimal_circuits.py`` (ten minutes of one CPU core; a number behind
it: so many models).

Models of two layers with four heads each are trained. All 256 circuits of heads of each are gone
through by size, with what is outside put to its mean, to zero, or to what it does on the string
with all types exchanged. Then each method orders the heads, and as many of its first are taken.
"""

import json
import sys
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from tl_dyck import minimal_circuit
from tl_dyck.intervals import mean, share
from tl_dyck.judge import Question, methods
from tl_dyck.judge.answers import checked_answers
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.edges import Edges
from tl_dyck.judge.isolation import left_alone, seeded
from tl_dyck.judge.minimal import INSTEAD, EveryAnswer
from tl_dyck.judge.suites import HELD_OUT
from tl_dyck.kit.environment import environment, one_thread
from tl_dyck.studies.tables import markdown

n_cases = int(sys.argv[1]) if len(sys.argv) > 1 else 40
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "results/minimal")
FIRST = HELD_OUT + 20_000  # no model of judge-2
EDGES = {"edge-attribution": "EAP", "edge-integrated-gradients": "EAP-IG"}
HEADS = ("activation-patching", "path-patching", "attribution-patching", "mean-ablation")
HEADS += ("zero-ablation", "resample-ablation", "direct-logit-attribution", "sharpness")


def asked(name: str, sealed, questions: list[Question]) -> np.ndarray | None:
    """The numbers of a method; None if it has none, or they have not converged."""
    with left_alone(name, sealed.classes), seeded(sealed.name, name):
        found = methods.get(name)(sealed.copy(), questions)
    scores = [score for score, _ in checked_answers(name, found, len(questions))]
    return None if None in scores else np.array(scores) + methods.get(name).declared.above


def orders(sealed, heads: list) -> dict[str, np.ndarray]:
    """Each method's numbers of heads; of edges, the sum of sizes out of a head."""
    case = sealed.copy()
    edges = [edge for edge in Edges(case.model, case.tokens, case.tokens).edges if edge.source]
    leaves = np.array([[edge.source == head for edge in edges] for head in heads], dtype=float)
    of_edges = [Question("edge", (edge.source, edge.reader)) for edge in edges]
    found = {name: asked(name, sealed, [Question("carries", h) for h in heads]) for name in HEADS}
    for name, short in EDGES.items():
        numbers = asked(name, sealed, of_edges)
        found[f"{short}, edges out of a head"] = None if numbers is None else leaves @ numbers
    found["random order"] = np.zeros(len(heads))
    return {name: numbers for name, numbers in found.items() if numbers is not None}


@one_thread()
def rows_of(seed: int) -> tuple[list[dict], list[dict]]:
    """Of one model: what its minimal circuits are, and how each method's of that size do."""
    case = (sealed := sealed_case("trained", seed, n_layers=2, n_heads=4)).copy()
    drawn = np.random.default_rng(seed).permutation(8)
    least, rows, numbers = [], [], {}

    def circuits(instead: str, more: int = 0, claim: str = "agree") -> list:
        how = {"instead": instead, "claim": claim}
        found = minimal_circuit(case.model, case.task, case.length + more, **how)
        return [found.heads, *found.others]

    means = circuits("mean")
    for instead in INSTEAD:
        first, *others = found = circuits(instead)
        far = EveryAnswer(case.model, case.task, case.length + 2, instead=instead)
        kept = {
            "the only one": not others,
            "same to one less": sorted(circuits(instead, -1)) == found,
            "to one more": sorted(circuits(instead, 1)) == found,
            "faithful to two more": far.is_faithful(first),
            "same as with means": found == means,
            "same for what is right": found == circuits(instead, claim="any_token"),
        }
        least.append({"instead": instead, "size": len(first), **kept})
        answers = EveryAnswer(case.model, case.task, case.length, instead=instead)
        numbers = numbers or orders(sealed, answers.heads)
        for name, values in numbers.items():
            order = [answers.heads[place] for place in np.lexsort((drawn, -values))]
            enough = next(n for n in range(len(first), 9) if answers.is_faithful(order[:n]))
            done = {"changed": answers.share(order[: len(first)]), "more": enough - len(first)}
            rows.append({"instead": instead, "method": name, **done})
    return least, rows


both = [rows_of(FIRST + place) for place in range(n_cases)]
least, table = (pd.DataFrame([*chain(*each)]) for each in zip(*both, strict=True))
folder.mkdir(parents=True, exist_ok=True)
(folder / "environment.json").write_text(json.dumps(environment()), encoding="utf-8")

# %% How large minimal circuits are, and whether they stay the same if the question is another.
lines = []
for instead, group in least.groupby("instead", sort=False):
    told = ", ".join(f"{n}: {times}" for n, times in sorted(Counter(group["size"]).items()))
    kept = [share(int(group[name].sum()), len(group)).text(".0%") for name in [*least][2:]]
    lines.append([instead, told, mean(group["size"].to_numpy()).text(".1f"), *kept])
text = markdown(["outside", "heads: models", "mean", *[*least][2:]], lines)

# %% Circuits of that size by each method.
lines = []
for (instead, name), group in table.groupby(["instead", "method"], sort=False):
    faithful = share(int((group["more"] == 0).sum()), len(group)).text(".0%")
    changed, most = mean(group["changed"].to_numpy()).text(".2%"), f"{group['changed'].max():.1%}"
    lines.append(
        [instead, name, faithful, changed, most, mean(group["more"].to_numpy()).text(".1f")]
    )
head = ["outside", "method", "faithful", "answers changed", "at most", "heads more until faithful"]
text += "\n" + markdown(head, lines)
(folder / "table.md").write_text(text, encoding="utf-8")
print(f"{text}\n{n_cases} models, {time.process_time():.0f} s")
