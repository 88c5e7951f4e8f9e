"""Neither the order of questions nor a salt gives anything away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tl_dyck.cli.entry import app
from tl_dyck.judge import KINDS, JudgeError, judge, make_case
from tl_dyck.judge.cases import sealed_case, with_key
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.scores import ask
from tl_dyck.judge.suites import SUITES
from tl_dyck.kit.check import WrongTypeError, WrongValueError
from tl_dyck.kit.files import sha256
from tl_dyck_hooks.cases.pose import generator_of

SALT = "9e107d9d372bb6826bd81d3542a419d6"


def test_a_salt_is_hard_to_guess_or_refused(tmp_path: Path) -> None:
    """Not by its name, a few letters, or by trying out 32 bits."""
    quick = SUITES["quick"]
    short = ("", " ", "\t\n", "salt", "password", "Tr0ub4dor&3", "correct horse", SALT[1:])
    repeated = (" " * 40, "9" * 99, "abc" * 99, "password" * 9, "01" * 32 + "1" * 32)
    for salt in (*short, "0123456789abcdef", *repeated):
        with pytest.raises(WrongValueError, match=r"of \d+ characters .* at most \d+ bits"):
            quick.with_salt(salt)
    for salt in (SALT.upper(), str(3**81), f"{3**81:b}", "".join(map(chr, range(33, 53)))):
        assert quick.with_salt(salt).key.bit_length() > 100
    for salt in (None, 3, SALT.encode(), [SALT], torch.ones(3), math.nan):
        with pytest.raises(WrongTypeError, match="salt must be a text, got"):
            quick.with_salt(salt)  # type: ignore[arg-type]
    done = CliRunner().invoke(app, ["judge", "--salt", "", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "openssl rand -hex 16" in done.stderr
    mine = quick.with_salt(SALT)
    assert 2**100 < mine.key < 2**128
    assert str(mine.key) not in repr(mine)
    (kind, seed), *_ = mine.cases()
    assert divmod(seed, 2**64) == (mine.key, mine.first_seed)
    again = replace(mine, key=mine.key ^ 1)  # one bit of another salt, the same seeds
    assert sealed_case(kind, seed).name == sealed_case(*next(again.cases())).name
    one, other = (sealed_case(*next(suite.cases())).copy() for suite in (mine, again))
    assert one.name != other.name
    assert not torch.equal(one.tokens[:, :5], other.tokens[:, :5])


def test_a_private_case_is_drawn_from_all_bits_of_its_key() -> None:
    """The whole state of the generator is: numpy's Mersenne Twister draws the same from it."""
    seed = with_key(5, 2**127 + 1)
    drawn = torch.rand(8, generator=generator_of("uniform", seed), dtype=torch.float32)
    words = np.random.SeedSequence(int(sha256(["uniform", seed]), 16)).generate_state(624)
    twister = np.random.MT19937()
    twister.state = {**twister.state, "state": {"key": words, "pos": 624}}
    expected = (twister.random_raw(8) % 2**24) / 2**24
    np.testing.assert_array_equal(drawn.numpy(), expected.astype(np.float32))
    public = torch.Generator().manual_seed(int(sha256(["uniform", 5])[:8], 16))  # as it was
    assert torch.equal(
        torch.rand(8, generator=public), torch.rand(8, generator=generator_of("uniform", 5))
    )


def test_questions_stand_in_an_order_that_says_nothing() -> None:
    """Sorted by target, whatever the order in which facts were found; and none is asked twice."""
    seen: list[tuple[Any, ...]] = []

    def watcher(case: Any, questions: Any) -> list[float]:
        seen.append((case.name, [(each.kind, each.target) for each in questions], case))
        return [0.0] * len(questions)

    suite = dict.fromkeys(("alone", "twins", "levels", "built-edges", "features"), 0)
    for kind, seed in {"stack": 1, "backup": 4, **suite}.items():
        sealed = sealed_case(kind, seed)
        turned = SealedCase(kind, seed, sealed.copy(), sealed.facts[::-1])
        assert turned.facts == sealed.facts
        for each in (sealed, turned):
            ask("watcher", watcher, each)
    kinds = {kind for _, asked, _ in seen for kind, _ in asked}
    assert kinds == {*KINDS}
    for _, asked, case in seen:
        targets = [str(target).replace("None", "!") for _, target in asked]  # "!" before digits
        assert len({*targets}) == len(targets)
        if asked[0][0] not in ("token", "feature"):  # numbers of one digit
            assert targets == sorted(targets, key=lambda text: text.replace("(", ""))
        else:
            assert [target for _, target in asked] == sorted(target for _, target in asked)
        assert (case.other is not None) == (asked[0][0] == "same")
        assert (case.directions is not None) == (asked[0][0] == "feature")
        if case.directions is not None:  # nothing is shown that nobody asks about
            assert sorted(target[-1] for _, target in asked) == [*range(len(case.directions))]
    sealed = sealed_case("uniform", 0)
    with pytest.raises(JudgeError, match="uniform-0: a question is asked twice"):
        SealedCase("uniform", 0, sealed.copy(), [*sealed.facts, sealed.facts[0]])


@pytest.mark.parametrize(
    ("kinds", "seeds", "question"),
    [(("uniform", "balanced", "stack", "backup"), (0, 1, 3), "token"),
     (("levels",), range(16), "depth"), (("features",), (0, 3), "feature")],
)  # fmt: skip
def test_the_place_of_a_question_tells_nothing(
    kinds: tuple[str, ...], seeds: Sequence[int], question: str
) -> None:
    """It had 0.98 or more, on either side; so few questions give a wide interval."""
    suite = [(kind, seed) for kind in kinds for seed in seeds]
    found = judge("order", suite).loc[question]
    assert found["auroc_low"] - 0.05 <= 0.5 <= found["auroc_high"] + 0.05
    assert found["passes"] == 0


@pytest.mark.parametrize("kind", ["uniform", "balanced", "stack", "backup"])
def test_the_number_of_questions_on_brackets_tells_nothing(kind: str) -> None:
    """One of each prefix; of opening and of closing ones half are yes. Else each number told it."""
    asked = 0
    for seed in (0, 3, 4):
        facts = [x for x in sealed_case(kind, seed).facts if x.question.kind == "token"]
        assert len({fact.question.target[0] for fact in facts}) == len(facts)
        for closes in range(2):
            places = [(x.question.target[0][x.question.target[1]], x.answer) for x in facts]
            half = [answer for token, answer in places if token % 2 == closes]
            assert 2 * sum(half) == len(half)
        asked += len(facts)
    assert asked


#: Kind, seed, questions, of how many the answer is yes, and a digest of all: of judge-3.1.
#: None is trained, since another processor's rounding trains another model.
RECORDED = [
    ("balanced", 1_000_001, 24, 14, "ad05f0ca"),
    ("stack", 1_000_000, 20, 12, "05989e0c"),
    ("backup", 1_000_000, 13, 7, "99b9617b"),
    ("alone", 1_000_000, 1, 0, "e25ca83a"),
    ("twins", 1_000_000, 1, 1, "22f514ad"),
    ("built-edges", 1_000_001, 4, 2, "36738598"),
    ("levels", 1_000_000, 2, 1, "165b0908"),
    ("features", 1_000_001, 64, 32, "d44aaa24"),
]


@pytest.mark.parametrize(("kind", "seed", "n", "yes", "digest"), RECORDED)
def test_questions_and_answers_are_those_that_were_recorded(
    kind: str, seed: int, n: int, yes: int, digest: str
) -> None:
    """All that is drawn is drawn in the order in which it was: else suites need another name."""
    _, facts = make_case(kind, seed)
    rows = [[fact.question.kind, str(fact.question.target), fact.answer] for fact in facts]
    assert (len(rows), sum(answer for *_, answer in rows)) == (n, yes)
    assert sha256(rows)[:8] == digest
