"""Does faithfulness rank circuits as truth does? Methods' circuits, by CPR and CMD, and exactly.

Run it: ``python demos/does_faithfulness_rank.py`` (eight minutes on one CPU core; a number
behind it: so many models; the third word: so many resamples).

A method orders the heads of a model, and its circuits are the first k of them. CPR and CMD (Mueller
et al. 2025, MIB, arXiv 2504.13151) say how faithful these are, from 64 strings. What is true of the
same circuits is computed on every prefix: which share of closing brackets they keep right, at how
many sizes nothing is lost, and whether heads that carry come first. Trivial circuits stand below.
Both are asked twice: heads outside a circuit put out what they do on the string with all types
exchanged, as in MIB, or zeros.
"""

# %% Models that were held out: a third of them is trained.
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from tl_dyck.intervals import Estimate, estimate, mean, spearman
from tl_dyck.judge import CONTROLS, Question, Suite, methods
from tl_dyck.judge.answers import checked_answers
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.circuits import Circuits
from tl_dyck.judge.isolation import left_alone, seeded
from tl_dyck.judge.suites import HELD_OUT
from tl_dyck.kit.environment import environment, one_thread
from tl_dyck.studies.tables import markdown

n_cases = int(sys.argv[1]) if len(sys.argv) > 1 else 100
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "results/faithfulness")
n_bootstrap = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
FIRST = HELD_OUT + 10_000  # no model of judge-2, nor one that was looked at when rows were chosen
KINDS = {"uniform": 0.1, "balanced": 0.18, "stack": 0.18, "backup": 0.18, "trained": 0.36}
sizes = {kind: max(1, round(share * n_cases)) for kind, share in KINDS.items()}
#: Not asked: each of these trains something for every model, and takes as long as all others.
TRAIN = ("gates", "leave-one-out", "distributed", "sae-lens")
TRUTHS = {
    "kept": "answers kept",
    "sound": "sizes without loss",
    "found": "heads that carry come first",
}


def asked(name: str) -> bool:
    """Whether a method can be asked here, speaks of heads, and tells those of a model apart."""
    if name in methods.unavailable() or any(part in name for part in (*TRAIN, "sizes", "order")):
        return False
    return "carries" in methods.get(name).declared.kinds


def paths(circuits: Circuits, values: np.ndarray, drawn: np.ndarray) -> dict[str, list]:
    """Circuits of each size by each number's largest heads; CMD's by what is largest in size."""

    def first(numbers: np.ndarray) -> list:
        order = np.lexsort((drawn, -numbers))
        return circuits.nested([circuits.heads[place] for place in order])

    return {"CPR": first(values), "CMD": first(np.abs(values))}


def trivial(circuits: Circuits, drawn: np.ndarray) -> dict[str, dict[str, list]]:
    """What is no method: no order, none at all, what is told all, and what looks at the metric."""
    n = len(circuits.heads)
    effects = np.array(list(circuits.carry().values()))
    alike = {"all heads at every size": circuits.heads, "no head at any size": ()}
    return {
        **{name: dict.fromkeys(("CPR", "CMD"), [heads] * (n + 1)) for name, heads in alike.items()},
        "random order": paths(circuits, np.zeros(n), drawn),
        "oracle: by what each head carries": paths(circuits, effects, drawn),
        "worst: the oracle backwards": paths(circuits, 1 - effects, drawn),
        "greedy for the metric itself": {
            "CPR": circuits.greedy(lambda found: found.faithfulness),
            "CMD": circuits.greedy(lambda found: -abs(1 - found.faithfulness)),
        },
    }


@one_thread()
def rows_of(kind: str, seed: int) -> list[dict]:
    """A row for each method and metric: what the metric says, and what is true."""
    sealed = sealed_case(kind, seed)
    circuits, by_zeros = (Circuits(sealed.copy(), zeros=zeros) for zeros in (False, True))
    drawn = np.random.default_rng(seed).permutation(len(circuits.heads))
    found = trivial(circuits, drawn)
    questions = [Question("carries", head) for head in circuits.heads]
    for name in filter(asked, methods.names()):
        method = methods.get(name)
        with left_alone(name, sealed.classes), seeded(sealed.name, name):
            answers = checked_answers(name, method(sealed.copy(), questions), len(questions))
        scores = [score for score, _ in answers]
        if None not in scores:
            found[name] = paths(circuits, np.array(scores) + method.declared.above, drawn)
    rows = []
    for name, by_metric in found.items():
        for metric, path in by_metric.items():
            of = {"case": sealed.name, "model": kind, "method": name}
            exchanged, zeros = (asdict(each.areas(path)) for each in (circuits, by_zeros))
            rows.append({**of, "metric": metric, **exchanged})
            rows.append({**of, "metric": f"{metric} by zeros", **zeros})
            beside = {truth: exchanged[truth] for truth in TRUTHS}
            rows.append({**of, "metric": f"{metric} by zeros, exchanged truth", **zeros, **beside})
    return rows


started, rows = time.process_time(), []
for kind, seed in Suite(name="faithfulness", first_seed=FIRST, sizes=sizes).cases():
    rows += rows_of(kind, seed)
seconds = time.process_time() - started
table = pd.DataFrame(rows)
folder.mkdir(parents=True, exist_ok=True)
table.to_csv(folder / "areas.csv", index=False)
(folder / "environment.json").write_text(json.dumps(environment()), encoding="utf-8")

# %% Rank correlation of metric and truth, among the methods of a model and among their means.
is_cpr = table["metric"].str.startswith("CPR")
table["said"] = np.where(is_cpr, table["cpr"], -table["cmd"])
table["exactly"] = np.where(is_cpr, table["exact_cpr"], -table["exact_cmd"])
honest = table[table["method"].isin(methods.names()) & ~table["method"].isin(CONTROLS)]
everywhere = honest.groupby("method")["case"].nunique() == honest["case"].nunique()
honest = honest[honest["method"].isin(everywhere.index[everywhere])]


def wrong_pairs(x: np.ndarray, y: np.ndarray) -> float:
    """Share of pairs of circuits, one truly better, that are ordered wrongly; ties count half."""
    said, true = (values[:, None] - values for values in (x, y))
    return float(((said < 0) + 0.5 * (said == 0))[true > 0].mean())


def within(group: pd.DataFrame, said: str, truth: str, rank=spearman) -> Estimate:
    """Mean over models of what ranks its circuits, where what is true of them differs."""
    found = []
    for _, one in group.groupby("case"):
        x, y = (one[name].round(9).to_numpy() for name in (said, truth))
        if len(np.unique(y)) > 1:
            found.append(float(rank(x, y)))
    return mean(found)


def between(group: pd.DataFrame, said: str, truth: str, rank=spearman) -> Estimate:
    """Of methods by their means over models; models are resampled."""
    x, y = (
        group.pivot(index="case", columns="method", values=name).to_numpy()
        for name in (said, truth)
    )
    known = ~np.isnan(y).any(1)
    x, y = x[known], y[known]
    rng = np.random.default_rng(0)
    drawn = [rng.integers(len(x), size=len(x)) for _ in range(n_bootstrap)]
    values = [float(rank(x[index].mean(0), y[index].mean(0))) for index in drawn]
    return estimate(float(rank(x.mean(0), y.mean(0))), np.array(values), len(x))


def tau(x: np.ndarray, y: np.ndarray) -> float:
    """Kendall's."""
    return stats.kendalltau(x, y).statistic


def row(ranked: str, how, group: pd.DataFrame, said: str, rank, form: str = ".2f") -> list[str]:
    """A line of the table: one number for each truth."""
    return [ranked, *(how(group, said, truth, rank).text(form) for truth in TRUTHS)]


lines = []
for metric, group in honest.groupby("metric", sort=False):
    trained = group[group["model"] == "trained"]
    of_metric = [
        row("circuits of a model, ρ", within, group, "said", spearman),
        row("circuits of a trained model, ρ", within, trained, "said", spearman),
        row("circuits of a model, by every prefix, ρ", within, group, "exactly", spearman),
        row("pairs in the wrong order", within, group, "said", wrong_pairs, ".1%"),
        row("the same, trained models", within, trained, "said", wrong_pairs, ".1%"),
        row("methods by their means, ρ", between, group, "said", spearman),
        row("methods by their means, τ", between, group, "said", tau),
    ]
    lines += [[metric, *line] for line in of_metric]
head = ["metric", "ranked", *TRUTHS.values()]
text = markdown(head, lines)

# %% What the metrics say of each method, and of what is none.
wide = table.pivot_table(index="method", columns="metric", values=["cpr", "cmd", *TRUTHS])
columns = [("cpr", "CPR"), *((truth, "CPR") for truth in TRUTHS)]
columns += [("cmd", "CMD"), *((truth, "CMD") for truth in TRUTHS), ("cpr", "CPR by zeros")]
order = [
    *wide.index[~wide.index.isin(methods.names())],
    *wide.loc[wide.index.isin(methods.names())].sort_values(("cpr", "CPR")).index[::-1],
]
shown = wide.loc[order, columns].map("{:.2f}".format)
names = ["circuits", "CPR", *TRUTHS.values(), "CMD", *TRUTHS.values(), "CPR by zeros"]
text += "\n" + markdown(
    names, [[name, *cells] for name, cells in zip(order, shown.to_numpy(), strict=True)]
)
(folder / "table.md").write_text(text, encoding="utf-8")
print(text)
print(f"{table['case'].nunique()} models, {honest['method'].nunique()} methods, {seconds:.0f} s")
