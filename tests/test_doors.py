"""Every shape of model and task through every public call: brute force's answer, or why not.

``python -m tests.test_doors 20000`` tries so many cells, drawn at random, and prints the table.
"""

from __future__ import annotations

import dis
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.door_calls import CALLS, kept, read_by, some_strings, wrong
from tests.doors import FACTORS, LONGEST, SAID, UNNAMED, Oracle, World, cover, given, oracle
from tl_dyck.language import VocabularyWarning
from tl_dyck.tasks import DyckTask

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


LEAST = 0.5
"""Share answered where all is said and no norm is refused; the rest asks two layers for an RNN,
automata for a stack, sets for a proof, …"""


def _automaton(o: Oracle) -> bool:
    return not isinstance(o.task, DyckTask)


def _claim(call: str) -> str:
    return call.split()[-1] if " " in call else "any_token"


def _is_wrong(o: Oracle, call: str) -> bool:
    """A string on which what was to be proved is not so."""
    if call == "edit_proof":
        return kept(o, read_by(o, some_strings(o, 3)[0])) < 0
    claim = _claim(call)
    other = oracle(o.world, seed=5) if claim == "agree" else None
    return any(any(wrong(o, claim, n, other).values()) for n in range(LONGEST))


def _all_wrong(o: Oracle, claim: str) -> bool:
    return all(all(wrong(o, claim, n, None).values()) for n in range(LONGEST))


def _silent(o: Oracle, call: str) -> bool:
    lengths = [3] if "sample" in call else range(LONGEST + 1)
    return not any(wrong(o, _claim(call), n, None) for n in lengths)


#: Why a cell may be refused: what is said, and of which worlds and calls that is a reason.
REASONS: dict[str, tuple[str, Callable[[Oracle, str], bool]]] = {
    "ids unnamed": (
        "^nothing says which token id|^save_model saves models of tl_dyck|has no tokenizer to read"
        "|^nothing says which tokens of this model are BOS",
        lambda o, call: o.world.kind in UNNAMED,
    ),
    "outputs unsaid": (
        r"logits for \d+ ids, and nothing says which is of which",
        lambda o, call: o.world.kind in ("unsaid", "bare-more"),
    ),
    "logits are no tokens": (
        r"nothing says which of the \d+ logits",
        lambda o, call: o.world.kind in ("classes", "bare-more"),
    ),
    "two layers": (
        "only one layer is such an RNN|proofs of one-layer models only",
        lambda o, call: o.world.layers == 2,
    ),
    "two layers with positions": (
        "pos_embed: the model has positions",
        lambda o, call: o.world.layers == 2 and o.world.positions,
    ),
    "RMS": ("RMSNorm|normalization_type='RMS'", lambda o, call: o.world.norm == "RMS"),
    "no stack": (
        r"has no stack: (\w+) is of Dyck languages only|task must be a DyckTask, got AutomatonTask",
        lambda o, call: _automaton(o),
    ),
    "claim of an automaton": (
        "only 'any_token'( and 'allowed')? can be claimed",
        lambda o, call: _automaton(o) and _claim(call) not in ("any_token", "allowed"),
    ),
    "no BOS to prove": (
        "proofs are of models whose strings start with BOS",
        lambda o, call: o.world.kind == "startless" and o.world.layers == 2,
    ),
    "hidden BOS": (
        "a BOS that is hidden from it",
        lambda o, call: o.world.kind == "startless" and ("balance" in call or "drift" in call),
    ),
    "no minimal first layer": (
        "needs a minimal first layer",
        lambda o, call: call in ("probe accuracy_at_length", "probe pair_drift"),
    ),
    "several heads": (
        "balance violation is defined for one head",
        lambda o, call: o.world.heads == 2 and call == "probe pair_drift",
    ),
    "one type or depth": (
        "takes two types and depth 2",
        lambda o, call: (
            1 in (o.task.n_types, o.task.max_depth) and ("balance" in call or "drift" in call)
        ),
    ),
    "nothing is claimed": ("says nothing of (strings|prefixes)|speaks of no prefix", _silent),
    "wrong, so no proof": (
        "another logit is larger|is wrong, or within rounding|wrong side of the threshold",
        _is_wrong,
    ),
    "right nowhere": (
        "has no prefix right",
        lambda o, call: call.startswith("truths") and _all_wrong(o, _claim(call)),
    ),
    "no proof of sets": (
        "the claim 'allowed' has proofs by paths, of one-layer models",
        lambda o, call: call == "prove_language allowed" and o.world.layers == 2,
    ),
    "asked at no such length": (
        "asks for nothing after strings of 3 symbols",
        lambda o, call: _silent(o, call),
    ),
    "kind without a proof": (
        "is not of one layer and head without positions",
        lambda o, call: o.world.layers == 1 and call.startswith("prove_language"),
    ),
}


def _is_ours(error: BaseException) -> bool:
    """Whether a ``raise`` of ours raised it, and says why in a line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    code, where = trace.tb_frame.f_code.co_code, trace.tb_frame.f_globals["__name__"]
    raised = code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return raised and where.startswith("tl_dyck") and "\n" not in str(error)


def outcome(row: tuple[Any, ...]) -> str:
    """Whether it is "answered", or why not: a line of ours that fits the cell.

    Anything else raises: a wrong number, another error, a reason that the cell does not give.
    """
    world, call = World(*row[:-1]), row[-1]
    try:
        found = oracle(world)
        CALLS[call](found, None if call == "adopting" else given(world))
    except (ValueError, TypeError) as error:
        if not _is_ours(error):
            raise
        said = str(error)
        for reason, (words, fits) in REASONS.items():
            if re.search(words, said):
                assert world.norm == "RMS" or fits(Oracle(world, oracle(world).model), call), (
                    row, said
                )  # fmt: skip
                return reason
        raise AssertionError(f"no reason that is known, of {row}: {said}") from error
    return "answered"


def outcomes(rows: list[tuple[Any, ...]]) -> list[str]:
    """What became of cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VocabularyWarning)  # random models prefer anything
        return [outcome(row) for row in rows]


def printed(rows: list[tuple[Any, ...]], found: list[str]) -> float:
    """Print the table; the share that is answered where all is said, and the norm is not RMS."""
    kind, norm = map(list(FACTORS).index, ("kind", "norm"))
    cells = zip(rows, found, strict=True)
    said = [each for row, each in cells if row[kind] in SAID and row[norm] != "RMS"]
    share = said.count("answered") / len(said)
    print(f"{len(rows):,} cells; {share:.1%} answered where all is said")
    for reason, number in Counter(found).most_common():
        print(f"{number:7,} {reason}")
    return share


def cells() -> list[tuple[Any, ...]]:
    """Worlds that hold each pair of their values; each call in some that hold each value.

    Worlds are used by several calls, since to make one takes longer than to ask it.
    """
    worlds, found = cover(FACTORS, more=0, seed=0), []
    used = dict.fromkeys(worlds, 0)
    for call in CALLS:
        left = {(i, value) for i, values in enumerate(FACTORS.values()) for value in values}
        while left:
            world = max(worlds, key=lambda world: (len(left & {*enumerate(world)}), -used[world]))
            used[world] += 1
            left -= {*enumerate(world)}
            found.append((*world, call))
    assert all(used.values())
    return found


def test_every_shape_through_every_door() -> None:
    """Each pair of task, shape of the model, ids and call is in a cell."""
    rows = cells()
    assert printed(rows, outcomes(rows)) > LEAST


@pytest.mark.slow
def test_more_shapes_drawn_at_random() -> None:
    """A thousand cells, whose worlds hardly ever come twice."""
    rows = cover({**FACTORS, "call": tuple(CALLS)}, more=1000, seed=0)[-1000:]
    assert printed(rows, outcomes(rows)) > LEAST


if __name__ == "__main__":
    torch.set_num_threads(1)
    drawn = cover({**FACTORS, "call": tuple(CALLS)}, more=int(sys.argv[1]), seed=1)
    printed(drawn, outcomes(drawn))
