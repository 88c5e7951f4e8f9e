"""How well weights tell what is heard where units never open: ``python -m tests.judge.shut``.

Cases of the five tasks are made with and without such units, of seeds that nothing else has.
"""

from __future__ import annotations

import argparse
import itertools

import pandas as pd

from tl_dyck.judge import score_table
from tl_dyck.judge.cases import list_kinds, sealed_case
from tl_dyck.judge.protocol import JudgeError, methods
from tl_dyck.judge.scores import ask, oracle_rows
from tl_dyck.kit.environment import one_thread

ASKED = ("path-norm", "resample-ablation", "zero-ablation")
FIRST = 5000  # seeds that nothing else has: development cases are below, judged ones far above


@one_thread()
def scored(seeds: int, *, shut: bool) -> pd.DataFrame:
    """A row for each method: the AUROC of *carries* with its interval, and how many cases."""
    kinds = [kind for kind in list_kinds() if kind.startswith("task-")]
    told, known = [], []
    for kind, seed in itertools.product(kinds, range(FIRST, FIRST + seeds)):
        try:
            case = sealed_case(kind, seed, shut=shut)
        except JudgeError:  # it learns nothing, or has no such units: said by the number of cases
            continue
        known += oracle_rows(case)
        told += [
            row | {"method": name} for name in ASKED for row in ask(name, methods.get(name), case)
        ]
    facts = pd.DataFrame(known)
    table = score_table(pd.DataFrame(told), asked=facts)
    of_carries = table.index.get_level_values("question").str.startswith("carries")
    cases = facts.loc[facts["question"].str.startswith("carries"), "case"].nunique()
    return table.loc[of_carries, ["auroc", "auroc_low", "auroc_high"]].assign(cases=cases)


def main() -> None:
    parser = argparse.ArgumentParser(description="What weights tell of *carries*.")
    parser.add_argument("--seeds", type=int, default=16)
    said = parser.parse_args()
    for shut in (False, True):
        print("\nunits that never open" if shut else "as the suite")
        print(scored(said.seeds, shut=shut).round(2))


if __name__ == "__main__":
    main()
