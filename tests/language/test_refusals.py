"""What is no language, string, law, vocabulary or size: one line that says what is wrong, at once.

Integers of wrong types are in `tests.arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.foreign import LANGUAGE, VOCABULARY
from tl_dyck import (
    AutomatonTask,
    DyckDistribution,
    DyckLanguage,
    DyckTask,
    Vocabulary,
    VocabularyError,
    build_tokenizer,
    get_config,
)
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.language import DyckStringError

FLAT = DyckDistribution(DyckLanguage(2, 2))
LAW = DyckDistribution(LANGUAGE)
FIVE_TO_SIX = DyckLanguage(3, 4, ["{", "}", "[", "]", "(", ")"])


def language(*given: Any) -> Callable[[], Any]:
    return partial(DyckLanguage, *given)


def parsed(text: str, prefix: bool = True) -> Callable[[], Any]:
    return lambda: DyckLanguage(2, 2).parse(text, prefix=prefix)


def read(name: str, token: int) -> Callable[[], Any]:
    return lambda: getattr(LANGUAGE, name)(torch.tensor([0, token]))


def following(rows: Any) -> Callable[[], Any]:
    return lambda: FLAT.next_token_probs(torch.tensor(rows))


def closing(law: DyckDistribution, length: int, mode: str = "complete") -> Callable[[], Any]:
    return lambda: law.sample_ending_in_close(4, length, mode=mode)


def vocabulary(brackets: Any, bos: int = 1, padding: int | None = None) -> Callable[[], Any]:
    return lambda: Vocabulary(LANGUAGE, brackets, bos=bos, padding=padding)


def to_ours(*ids: Any, dtype: torch.dtype = torch.int64) -> Callable[[], Any]:
    return lambda: VOCABULARY.to_ours(torch.tensor(ids, dtype=dtype))


def counting(lengths: Any, **fields: Any) -> Callable[[], Any]:
    values: dict[str, Any] = {
        "name": "counter", "symbols": ("a", "b"), "start": 0, "long_lengths": (10, 20),
        "moves": lambda n: {"a": n + 1, **({"b": n - 1} if n else {})},
    }  # fmt: skip
    return lambda: AutomatonTask(**{**values, **fields}, train_lengths=lengths)


def task(**fields: Any) -> Callable[[], DyckTask]:
    return lambda: DyckTask(**{"name": "x", "n_types": 2, "max_depth": 4, **fields})


Refused = tuple[Callable[[], Any], type[Exception], str]
REFUSED: list[Refused] = [
    # languages
    (language(0, 4), ValueError, r"n_types must be at least 1, got 0"),
    (language(2, 0), ValueError, r"max_depth must be at least 1, got 0"),
    (language(1, 4, ("a", "a")), ValueError, r"bracket 'a' is given twice"),
    (language(1, 4, ("a", "")), ValueError, r"a bracket is the empty string"),
    (language(2, 4, ("a", "b")), ValueError, r"2 bracket type\(s\) need 4 brackets .* got 2"),
    (language(2, 4, ("<", "<script>", "a", "b")), ValueError,
     r"ambiguous brackets: '<' is the beginning of '<script>'"),
    *((language(2, 4, brackets), ValueError, r"can spell '<bos>'")
      for brackets in (("x<bos>", *"yab"), ("x<b", "os>y", *"ab"), ("x<", "b", "os", ">>"))),
    # strings
    (parsed("[a]"), DyckStringError,
     r"unknown bracket 'a' at character 1 of '\[a\]'; the brackets are \[ \] \( \)"),
    (parsed("[ ]"), DyckStringError, r"unknown bracket ' ' at character 1"),
    (parsed("<bos>[]"), DyckStringError, r"unknown bracket '<' at character 0"),
    (parsed("[]]"), DyckStringError,
     r"unbalanced: '\]', bracket 2 of '\[\]\]', closes nothing"),
    (parsed("[(])"), DyckStringError,
     r"unbalanced: '\]', bracket 2 .* cannot close '\(', bracket 1; expected '\)'"),
    (parsed("[[[]]]"), DyckStringError,
     r"too deep: '\[', bracket 2 .* reaches depth 3, but max_depth is 2.*DyckLanguage\(2, 3\)"),
    (parsed("[()", prefix=False), DyckStringError,
     r"unfinished: '\[', bracket 0 .* is never closed; 1 bracket\(s\) are left open"),
    (parsed("[]" * 500 + ")"), DyckStringError,
     r"bracket 1000 of '(\[\]){39}\[…', closes nothing"),
    (lambda: build_tokenizer(LANGUAGE).encode("[x]"), DyckStringError,
     r"unknown bracket 'x' at character 1 of '\[x\]'; the brackets are \[ \] \( \)$"),
    *((read(name, token), ValueError,
       rf"token {token} is outside 0..4; 2 bracket type\(s\) have tokens 0..3")
      for token in (5, -1)
      for name in ("depth", "matching", "top_of_stack", "is_prefix", "is_complete", "to_string")),
    (following([0, 3]), DyckStringError,
     r"position 1 makes it no prefix of Dyck\(2, 2\): '\[\)'"),
    (following([[0, 1], [1, 0]]), DyckStringError, r"position 0 of string 1 makes it no prefix"),
    (following([[[0, 0, 0]]]), DyckStringError, r"position 2 of string \(0, 0\) makes it no"),
    # lengths and modes
    (lambda: LANGUAGE.enumerate(60), ValueError, r"strings of length 60: too many to enumerate"),
    (lambda: LANGUAGE.count(-2), ValueError, "length must be at least 0, got -2"),
    (lambda: LANGUAGE.count(4, "prefixes"), UnknownNameError,  # type: ignore[arg-type]
     r"unknown mode .*Did you mean 'prefix'.* Known: complete, prefix"),
    (lambda: LANGUAGE.enumerate(4, "x"), UnknownNameError, "unknown mode"),  # type: ignore[arg-type]
    (lambda: LAW.sample(4, 4, mode="x"), UnknownNameError, "mode 'x'"),  # type: ignore[arg-type]
    (lambda: FLAT.entropy_floor(4, "x"), UnknownNameError, "mode 'x'"),  # type: ignore[arg-type]
    (lambda: FLAT.log_prob(torch.tensor([0]), mode="x"),  # type: ignore[arg-type]
     UnknownNameError, "mode 'x'"),
    (lambda: LAW.sample(4, 7), ValueError,
     r"complete strings have an even length, got 7; choose 6 or 8"),
    (lambda: LAW.sample(4, 1), ValueError, r"got 1; choose 2 or 2, or mode='prefix'"),
    (lambda: LAW.sample(4, -2), ValueError, r"length must be at least 0, got -2"),
    (lambda: LAW.sample(-1, 4), ValueError, r"n must be at least 0, got -1"),
    (lambda: FLAT.entropy_floor(7, "complete"), ValueError,
     r"even length, got 7; choose 6 or 8, or mode='prefix'"),
    (lambda: FLAT.entropy_floor((2, 3), "complete"), ValueError, r"even length, got 3"),
    (lambda: FLAT.entropy_floor(0, "prefix"), ValueError, r"length must be at least 1, got 0"),
    (lambda: FLAT.entropy_floor((), "prefix"), ValueError, r"lengths is empty"),
    (closing(LAW, 1, "prefix"), ValueError, r"no string of length 1 ends in a close"),
    (closing(LAW, 0), ValueError, r"no string of length 0 ends in a close"),
    (closing(LAW, 5), ValueError, r"even length, got 5"),
    (closing(DyckDistribution(DyckLanguage(2, 1)), 5, "prefix"), ValueError,
     r"no string of length 5 ends in a close in Dyck\(2, 1\); choose an even length"),
    *((partial(DyckDistribution, LANGUAGE, q), ValueError,
       "q must be strictly between 0 and 1, got")
      for q in (0.0, 1.0, -0.1, 1.5, math.nan, math.inf)),
    # vocabularies
    (vocabulary([4, 5, 2]), VocabularyError, "4 brackets.*3 ids"),
    (vocabulary([4, 5, 2, 2]), VocabularyError, r"id 2 is given to both \( and \)"),
    (vocabulary([4, 5, 2, 3], 3), VocabularyError, r"both \) and BOS"),
    (vocabulary([4, 5, 2, 3], 1, 5), VocabularyError, r"both \] and padding"),
    (vocabulary([4, 5, 2, -3]), VocabularyError, "the id of a bracket must be at least 0"),
    (vocabulary({"[": 4, "]": 5, "<": 2, ">": 3}), VocabularyError, "ids are given for"),
    *((vocabulary(kind({4, 5, 2, 3})), TypeError, "") for kind in (set, frozenset)),  # no order
    (lambda: VOCABULARY.order(5), VocabularyError,
     "id 5 is not in a vocabulary of d_vocab=5"),
    *((to_ours(1, 4, token), VocabularyError, rf"id {token} is not named")
      for token in (6, -1, 2**40, 2**62, -(2**40))),
    (to_ours([0, 0, 1, 2]), VocabularyError, "goes on after padding"),
    (lambda: VOCABULARY.to_model(torch.tensor([4, 5])), ValueError, r"outside 0\.\.4"),
    *((to_ours(1, 0, dtype=dtype), TypeError, "")
      for dtype in (torch.float64, torch.float16, torch.bool, torch.complex64)),
    (lambda: Vocabulary.of_tokenizer(DyckLanguage(1, 2, ["<", ">"]), build_tokenizer(FIVE_TO_SIX)),
     VocabularyError, "no token '<'"),
    # what would have no end, or ask for all memory
    (counting((10**9,)), ValueError, "train_lengths must be at most 100000"),
    (counting((2,), long_lengths=(2, 10**9)), ValueError, "long_lengths must be at most 100000"),
    (counting((20_000,)), ValueError, "more than 50,000,000 entries"),
    (task(n_types=10**9), ValueError, "n_types must be at most 10000, got 1000000000"),
    (task(max_depth=10**12), ValueError, "max_depth must be at most 10000000"),
    (task(train_lengths=range(2, 10**12, 2)), ValueError, "train_lengths must be at most"),
    (vocabulary((0, 1, 2, 2**70), 9), ValueError, "brackets must be of at most 64 bits"),
    (lambda: get_config("minimal-yao", task(max_depth=10**7)()), ValueError,
     "table of a minimal first layer"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as refusal:
        call()
    if error is not TypeError:  # in tests the checker of annotations may come first
        assert len(str(refusal.value)) < 400
        assert "\n" not in str(refusal.value)


def test_long_strings_of_few_states_are_drawn() -> None:
    drawn = counting((20_000,), moves=lambda n: {"a": n, "b": n})().sample(1, seed=0)
    assert drawn.shape == (1, 20_001)
