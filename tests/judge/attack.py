"""Attack a suite: what can be said of its answers by who sees everything but what models do.

    python -m tests.judge.attack results/judge                   # a folder of `tl-dyck judge`
    python -m tests.judge.attack --scale parts --cases levels=200 --salt "$(openssl rand -hex 16)"

Learners are told the answers of development cases, and asked those of the suite. What they see
(`visible`) is in views: the place and number of questions, sizes and attributes, how arrays lie in
memory and how long a pass takes, the strings, weights without the readout, the readout alone. The
best of a column is what the page of results must not exceed; ``attack.json``, which is left in the
folder, is what `docs/tables.py` wants before it records a suite.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.judge.visible import seen
from tl_dyck.judge import KINDS, SUITES, Case, Fact, Suite
from tl_dyck.judge.cases import group_of, sealed_case
from tl_dyck.judge.cheats import broken
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.protocol import column_of
from tl_dyck.judge.public import opened
from tl_dyck.judge.rates import auroc
from tl_dyck.judge.scores import score_table
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.files import sha256, write_json

#: Sets of views that learners are given; weights and readout together would be the model.
VIEWS = {
    "place and number": ("place",),
    "sizes": ("sizes",),
    "memory and time": ("body",),
    "strings": ("strings",),
    "weights": ("weights",),
    "readout": ("readout",),
    "all but the readout": ("place", "sizes", "body", "strings", "weights"),
    "all but the weights": ("place", "sizes", "body", "strings", "readout"),
}
LEARNERS: dict[str, Callable[[], Any]] = {
    "boosting": lambda: HistGradientBoostingClassifier(
        max_iter=120, learning_rate=0.06, max_leaf_nodes=15, random_state=0
    ),
    "forest": lambda: RandomForestClassifier(200, min_samples_leaf=3, random_state=0),
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)),
}


# --- learning -------------------------------------------------------------------------------------


def rows_of(case: Case, facts: Sequence[Fact], name: str, model: str) -> pd.DataFrame:
    """All that is seen of a case, and the answers, in the order in which questions stand."""
    found, earlier = [], Counter(fact.question.kind for fact in facts)
    for kind in KINDS:
        asked = [fact for fact in facts if fact.question.kind == kind]
        if not asked:
            continue
        shown = replace(
            case,
            other=case.other if kind == "same" else None,
            directions=case.directions if kind == "feature" else None,
        )
        table = seen(shown, [fact.question for fact in asked], earlier)
        about = {"case": name, "model": model, "question": kind}
        targets = [" ".join(map(str, fact.question.target)) for fact in asked]
        answers = [fact.answer for fact in asked]
        found.append(table.assign(**about, target=targets, answer=answers))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()  # none is asked


def attacked(
    learnt: pd.DataFrame,
    asked: pd.DataFrame,
    n_bootstrap: int = 1000,
    views: Sequence[str] = tuple(VIEWS),
    folds: int = 1,
) -> pd.DataFrame:
    """The best of all learners on all views for each column, with the interval of that one.

    Args:
        learnt: rows of development cases.
        asked: rows of others.
        n_bootstrap: resamples of cases.
        views: keys of `VIEWS`.
        folds: of more than one, learners are told the answers about all other folds of what is
            asked, too.

    Returns:
        A row for each column: question, auroc, auroc_low, auroc_high, by, n, cases, tried. The
        best of so many is by chance a little above what it would be on other cases.
    """
    every = []
    for kind in [kind for kind in KINDS if kind in {*asked["question"]}]:
        train, test = (rows[rows["question"] == kind] for rows in (learnt, asked))
        for view in views:
            for learner, make in LEARNERS.items():
                score = _by_fold(make, train, test, VIEWS[view], folds)
                every.append(_scored(test, f"{learner} on {view}", score))
    found = []
    for _, rows in pd.concat(every, ignore_index=True).groupby("column", sort=False):
        names = rows.groupby("method").apply(
            lambda group: auroc(group["answer"].to_numpy(bool), group["score"].to_numpy(float)),
            include_groups=False,
        )
        if names.isna().all():
            continue
        best = rows[rows["method"] == names.idxmax()]
        (row,) = score_table(best, n_bootstrap=n_bootstrap).reset_index().to_dict("records")
        found.append({**row, "by": row["method"], "tried": len(names)})
    keep = ["question", "auroc", "auroc_low", "auroc_high", "by", "n", "cases", "tried"]
    return pd.DataFrame(found)[keep]


def _by_fold(
    make: Callable[[], Any],
    train: pd.DataFrame,
    test: pd.DataFrame,
    parts: Sequence[str],
    folds: int,
) -> np.ndarray:
    """The probability of a yes, by who knows the answers about the cases of all other folds."""
    names = {name: at % folds for at, name in enumerate(dict.fromkeys(test["case"]))}
    fold, score = test["case"].map(names).to_numpy(), np.empty(len(test))
    for each in {*names.values()}:
        here = fold == each
        known = pd.concat([train, test[~here]]) if folds > 1 else train
        answers = known["answer"].to_numpy(bool)
        score[here] = _said(make(), _inputs(known, test[here], parts), answers)
    return score


def _inputs(train: pd.DataFrame, test: pd.DataFrame, parts: Sequence[str]) -> list[np.ndarray]:
    """Columns of some views, those that both have and that are not all alike; no number is 0."""
    names = [name for name in train if name.partition(": ")[0] in parts and name in test]
    x = [rows[names].to_numpy(float) for rows in (train, test)]
    x = [np.nan_to_num(each, nan=0.0, posinf=1e6, neginf=-1e6) for each in x]
    varies = x[0].std(0) > 0
    return [each[:, varies] for each in x]


def _said(learner: Any, inputs: list[np.ndarray], answers: np.ndarray) -> np.ndarray:
    """The probability of a yes; a half where nothing can be learnt."""
    train, test = inputs
    if not train.shape[1] or answers.all() or not answers.any():
        return np.full(len(test), 0.5)
    with warnings.catch_warnings():  # where a regression has not converged it is a learner still
        warnings.simplefilter("ignore")
        found: np.ndarray = learner.fit(train, answers).predict_proba(test)[:, 1]
    return found


def _scored(test: pd.DataFrame, method: str, score: np.ndarray) -> pd.DataFrame:
    """Rows as `score_table` takes them."""
    rows = test[["case", "model", "question", "target", "answer"]].assign(
        method=method, score=score
    )
    rows = rows.assign(size=np.nan, said=np.nan, seconds=0.0, passes=0.0, backward=0.0)
    return rows.assign(column=[*map(column_of, rows["question"], map(group_of, rows["model"]))])


# --- a suite --------------------------------------------------------------------------------------


@one_thread()
def looked_at(
    suite: Suite, folder: Path | None = None, one: Callable[[str, int], SealedCase] = sealed_case
) -> pd.DataFrame:
    """What is seen of every case of a suite; kept, if there is a folder, one file a case.

    Args:
        suite: whose cases.
        folder: where to keep it.
        one: makes a case from kind and seed, or reads it.
    """
    found = []
    for kind, seed in suite.cases():
        name = f"{kind}-{sha256([kind, seed])[:16]}"
        file = None if folder is None else folder / f"{name}.parquet"
        if file is None or not file.exists():
            sealed = one(kind, seed)
            rows = rows_of(sealed.copy(), sealed.facts, sealed.name, kind)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                rows.to_parquet(file)
        else:
            rows = pd.read_parquet(file)
        found.append(rows)
        print(f"\r{len(found)} cases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return pd.concat(found, ignore_index=True)


def development(suite: Suite, share: float = 1.0) -> Suite:
    """As many cases of the same kinds from development seeds."""
    sizes = {kind: max(4, round(share * size)) for kind, size in suite.sizes.items()}
    return Suite(name="development", first_seed=0, sizes=sizes)


def _sizes(pairs: Sequence[str]) -> dict[str, int]:
    return {kind: int(size) for kind, size in (each.split("=") for each in pairs)}


def too_good(found: pd.DataFrame) -> list[str]:
    """Where the best has more than what is promised, in words."""
    return [
        f"“{row['question']}”: {row['by']} has {row['auroc']:.2f} [{row['auroc_low']:.2f}, "
        f"{row['auroc_high']:.2f}], and {said}"
        for row in found.to_dict("records")
        if (said := broken(row["question"], row)) is not None
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack a judged folder, or a suite by its scale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of `tl-dyck judge`")
    parser.add_argument("--scale", default="quick", help=", ".join(SUITES))
    parser.add_argument("--salt", help="of a private suite, in place of the public one")
    parser.add_argument("--cases", nargs="*", help="KIND=NUMBER, in place of the suite's")
    parser.add_argument("--learnt", nargs="*", help="the same of development cases")
    parser.add_argument("--folds", type=int, default=1, help="learn from the other ones, too")
    parser.add_argument("--kept", type=Path, help="where to keep what is seen of cases")
    chosen = parser.parse_args(arguments)
    digest, one = None, sealed_case
    if chosen.folder is not None:
        from tl_dyck.judge import load_judgement

        done = load_judgement(chosen.folder)
        digest, chosen.scale = done.digest, done.suite.partition(",")[0].rpartition("/")[2]
        if done.suite != SUITES[chosen.scale].name:
            parser.error(f"{done.suite!r} is no public suite; say --scale and --salt")
        if done.file is not None:
            one = opened(*done.file).sealed
    suite = SUITES[chosen.scale]
    if chosen.salt is not None:
        suite = suite.with_salt(chosen.salt)
    if chosen.cases:
        suite = replace(suite, sizes=_sizes(chosen.cases))
    other = development(suite)
    if chosen.learnt:
        other = replace(other, sizes={**other.sizes, **_sizes(chosen.learnt)})
    kept = chosen.kept or (chosen.folder and chosen.folder / "attack")
    found = attacked(looked_at(other, kept), looked_at(suite, kept, one), folds=chosen.folds)
    print(found.to_string(index=False, float_format="{:.2f}".format))
    if chosen.folder is not None and chosen.folds == 1:
        words = [f"python -m tests.judge.attack {chosen.folder}"]
        words += [f"--learnt {' '.join(chosen.learnt)}"] if chosen.learnt else []
        facts = {"digest": digest, "suite": suite.name, "learnt": dict(other.sizes)}
        facts |= {"command": " ".join(words)}
        facts |= {"rows": found.to_dict("records")}
        write_json(chosen.folder / "attack.json", facts)
    wrong = too_good(found)
    print("\n".join(wrong) or "none has more than what is promised")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
