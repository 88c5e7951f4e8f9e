"""How well weights tell what is heard where they are to hide it: ``python -m tests.judge.shut``.

Cases of the five tasks are made as they are trained, and with what hides it, of seeds that nothing
else has. Learners are told the answers of four fifths of the cases, and asked the rest; they see
paths of weights from heads to logits, in sizes or as sums with signs, and who knows how it is made
which units states open, or which are one another's opposite.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tests.judge.attack import LEARNERS, _said
from tl_dyck.judge import Case, score_table
from tl_dyck.judge.cases import list_kinds, sealed_case
from tl_dyck.judge.protocol import JudgeError, methods
from tl_dyck.judge.scores import ask, oracle_rows
from tl_dyck.kit.environment import one_thread
from tl_dyck.models import DyckTransformer

ASKED = ("path-norm", "resample-ablation", "zero-ablation")
FIRST = 5000  # seeds that nothing else has: development cases are below, judged ones far above
#: What learners see: sizes of paths; sums with signs, if all units were open by one share; sums by
#: how often states alone open each unit; sizes of what a unit and its opposite write together.
VIEWS = ("sizes", "sums", "states", "opposites")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_FOLDS = 5


@torch.no_grad()
def paths(case: Case) -> pd.DataFrame:
    """A row for each head, ``target`` as in answers; columns are "view: number".

    Paths go from what a head writes to the logits of answers, by way of later heads, or not, and
    then through one unit of an MLP, or none. Norms are left out.
    """
    model: DyckTransformer = case.model
    readout = model.unembed.W_U[:, case.choices]
    readout = readout - readout.mean(1, keepdim=True)
    moves = [block.attn.W_V @ block.attn.W_O for block in model.blocks]  # head, d_model, d_model
    units = [(block.mlp.W_in, block.mlp.b_in, block.mlp.W_out) for block in model.blocks]
    _, cache = model.run_with_cache(case.tokens)
    states = cache["blocks.0.hook_resid_pre"].flatten(0, 1)
    opened = [(states @ w + b > 0).double().mean(0) for w, b, _ in units]
    jumps = [v + v[_opposites(w, b)] for w, b, v in units]

    def total(way: Tensor, layer: int, shares: Sequence[Tensor]) -> float:
        for at in range(layer, len(units)):
            way = way if at == layer else way + way @ moves[at].sum(0)
            way = way + way @ (units[at][0] * shares[at]) @ units[at][2]
        return float((way @ readout).norm())

    rows = []
    for layer, head in itertools.product(range(len(moves)), range(model.cfg.n_heads)):
        move = moves[layer][head]
        routes = [(move, layer)]
        routes += [(move @ each, at) for at in range(layer + 1, len(moves)) for each in moves[at]]
        sizes: dict[str, list[float]] = {"sizes: direct": [], "sizes: units": [], "opposites:": []}
        for way, first in routes:
            sizes["sizes: direct"].append(float((way @ readout).norm()))
            for at in range(first, len(units)):
                w, _, v = units[at]
                for view, wrote in (("sizes: units", v), ("opposites:", jumps[at])):
                    told = (way @ w).norm(dim=0) * (wrote @ readout).norm(dim=1)
                    sizes[view] += told.tolist()
        row = {f"{view} {name}": x for view, each in sizes.items()
               for name, x in _numbers(each).items()}  # fmt: skip
        for share in SHARES:
            shares = [torch.full_like(each, share) for each in opened]
            row[f"sums: {share}"] = total(move, layer, shares)
        row["states: "] = total(move, layer, opened)
        rows.append(row | {"target": f"{layer} {head}"})
    found = pd.DataFrame(rows).set_index("target")
    logs = np.log10(found.clip(lower=1e-12))
    beside = {"": logs, ", beside": logs - logs.max(), ", rank": found.rank() / len(found)}
    every = [each.add_suffix(name) for name, each in beside.items()]
    early = [float(target[0]) / len(moves) for target in found.index]
    layers = pd.DataFrame({f"{view}: layer": early for view in VIEWS}, index=found.index)
    return pd.concat([*every, layers], axis=1).reset_index()


def _opposites(w: Tensor, b: Tensor) -> Tensor:
    """For each unit the one that reads most nearly its opposite."""
    read = torch.cat([w, b[None]])
    read = read / read.norm(dim=0).clamp(min=1e-12)
    return (read.T @ read).argmin(1)


def _numbers(sizes: Sequence[float]) -> dict[str, float]:
    """How large they are in sum, at most, at least, and in between; how many are nothing."""
    each = np.array(sizes)
    shares = {f"{q}": float(np.quantile(each, q)) for q in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)}
    return {"sum": each.sum(), "none": float((each < 1e-9).mean()), **shares}


@one_thread()
def looked_at(kinds: Sequence[str], seeds: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What methods and the oracle say of cases, and `paths` with the answers."""
    told, seen = [], []
    for kind, seed in itertools.product(kinds, range(FIRST, FIRST + seeds)):
        print(f"\r{kind} {seed} ", end="", file=sys.stderr, flush=True)
        try:
            case = sealed_case(kind, seed)
        except JudgeError:  # it learns nothing, or nothing is hidden: said by the number of cases
            continue
        known = oracle_rows(case)
        told += known
        told += [row | {"method": x} for x in ASKED for row in ask(x, methods.get(x), case)]
        answers = pd.DataFrame(known, columns=["case", "model", "question", "target", "answer"])
        seen.append(answers.merge(paths(case.copy()), on="target"))
    return pd.DataFrame(told), pd.concat(seen, ignore_index=True)


def learnt(seen: pd.DataFrame) -> pd.DataFrame:
    """What each learner says by each view of the cases of a fold that it was not told of."""
    found = []
    for _, rows in seen.groupby("question"):
        fold = pd.factorize(rows["case"])[0] % _FOLDS
        for view, (name, make) in itertools.product(VIEWS, LEARNERS.items()):
            x = rows[[each for each in rows if each.startswith(f"{view}: ")]].to_numpy(float)
            answers, score = rows["answer"].to_numpy(bool), np.empty(len(rows))
            for at in range(_FOLDS):
                out = fold == at
                score[out] = _said(make(), [x[~out], x[out]], answers[~out]) - 0.5
            said = rows[["case", "model", "question", "target", "answer"]]
            found.append(said.assign(method=f"{name} on {view}", score=score))
    return pd.concat(found, ignore_index=True)


def table(told: pd.DataFrame, seen: pd.DataFrame, *, pooled: bool) -> pd.DataFrame:
    """AUROC with its interval of each method and learner, of each kind of question."""
    rows = pd.concat([told, learnt(seen)], ignore_index=True)
    rows[["size", "said"]] = np.nan
    rows[["seconds", "passes", "backward"]] = rows[["seconds", "passes", "backward"]].fillna(0.0)
    rows = rows.assign(model="uniform") if pooled else rows  # of no task: all in one column
    found = score_table(rows, asked=rows[rows["method"] == "oracle"])
    return found[["auroc", "auroc_low", "auroc_high", "n", "cases"]]


def main() -> None:
    parser = argparse.ArgumentParser(description="What weights tell of what is heard.")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--tasks", action="store_true", help="task by task, too")
    said = parser.parse_args()
    for before in ("task-", "hidden-"):
        kinds = [kind for kind in list_kinds() if kind.startswith(before)]
        told, seen = looked_at(kinds, said.seeds)
        for pooled in (True, False)[: 1 + said.tasks]:
            print(f"\n{before}…")
            print(table(told, seen, pooled=pooled).round(2).to_string())


if __name__ == "__main__":
    main()
