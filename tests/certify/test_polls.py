"""Limits: looked at wherever work piles up, counted in looks and calls, not in seconds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import thinned
from tl_dyck import certify_language, construct, prove_edits, prove_language, sample_error
from tl_dyck.certify import CertifyError, certify, deadline, spaces, word_space
from tl_dyck.certify.proof import NoProofError
from tl_dyck.certify.spaces import SpaceError
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config
from tl_dyck.rnn import export_rnn
from tl_dyck.tasks import DyckTask

TASK = DyckTask(name="d", n_types=2, max_depth=3, train_lengths=(4,), long_lengths=(8, 8))
MODEL = construct.balanced(TASK.language, n_ctx=2100)
TRAINED = build_model(get_config("minimal-onehot", TASK))
TEXT = "[()]" * 10 + "["
LONG = "[()]" * 500 + "["

DECIDERS: dict[str, Callable[..., Any]] = {
    **{
        f"certify, {how}": lambda how=how, **limit: certify(
            MODEL, TEXT, "]", "pairs:2", how, **limit
        )
        for how in ("exact", "interval", "exhaustive")
    },
    "certify a long string": lambda **limit: certify(MODEL, LONG, "]", "pairs:1", **limit),
    "certify_language": lambda **limit: certify_language(MODEL, TASK, 60, **limit),
    "certify_language of a trained model": lambda **limit: certify_language(
        TRAINED, TASK, 8, **limit
    ),
    "sample_error": lambda **limit: sample_error(MODEL, TASK, 40, n=200, **limit),
    "prove_language": lambda **limit: prove_language(MODEL, TASK, 60, **limit),
    "prove_edits": lambda **limit: prove_edits(MODEL, TEXT, None, "pairs:2", **limit),
}
#: Functions that may be called after a limit has passed: a model is run, a result is made.
CALLS = 60_000


class Clock:
    """Stands still for some looks; then all time has passed. Counts calls from then on."""

    def __init__(self, looks: int) -> None:
        self.left, self.calls = looks, 0

    def __call__(self) -> float:
        self.left -= 1
        return 0.0 if self.left >= 0 else 1e6

    def count(self, frame: object, event: str, of: object) -> None:
        self.calls += event == "call" and self.left < 0


@pytest.mark.parametrize(
    ("name", "looks"), thinned([(name, looks) for name in DECIDERS for looks in (1, 2, 5, 20)], 3)
)
def test_little_is_done_once_a_limit_has_passed(name, looks, monkeypatch):
    decide = DECIDERS[name]
    clock = Clock(looks)
    monkeypatch.setattr(deadline, "now", clock)
    sys.setprofile(clock.count)
    try:
        found = decide(time_limit=1.0)
    except NoProofError as error:
        found = error
    finally:
        sys.setprofile(None)
    assert clock.calls < CALLS
    assert clock.left >= 0 or "1.0 s" in str(found) or not isinstance(found, NoProofError)


def test_a_long_string_is_looked_at_token_by_token(monkeypatch):
    """No more places are read than the clock was looked at, and depths are counted once."""
    read, counted = [], []
    real, depth = spaces._rewrites, DyckLanguage.depth
    monkeypatch.setattr(spaces, "_rewrites", lambda *given: read.append(1) or real(*given))
    monkeypatch.setattr(
        DyckLanguage, "depth", lambda self, tokens: counted.append(1) or depth(self, tokens)
    )
    sys.modules["tl_dyck.certify.transformations"]._last.clear()
    monkeypatch.setattr(deadline, "now", Clock(300))
    found = certify(MODEL, LONG[4:], "]", "pairs:1", time_limit=1.0)
    assert (found.status, found.worst) == ("open", None)
    assert found.reason == "the time limit of 1.0 s was reached before any string ran"
    assert 200 < len(read) < 300
    assert len(counted) < 5


def test_a_string_that_is_too_long_is_refused_before_it_is_laid_out(monkeypatch):
    monkeypatch.setattr(spaces, "_lattice", lambda *given: pytest.fail("it was laid out"))
    with pytest.raises(CertifyError, match=r"2202 tokens .* reads 2100"):
        certify(MODEL, "[" + "[]" * 1100, "]", "pairs:1")


class Letters:
    """A tokenizer whose tokens are letters; what it reads is counted."""

    read = 0

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        self.read += len(text)
        return [ord(letter) for letter in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))

    def __len__(self) -> int:
        return 128


def test_a_text_of_many_words_is_refused_before_it_is_read_again_and_again():
    tokenizer, text = Letters(), " ".join(["word"] * 10_000)
    with pytest.raises(SpaceError, match=r"has 49,999 characters, .* read 499,990,000 "):
        word_space(tokenizer, text, drop=1)
    assert tokenizer.read < 3 * len(text)
    assert len(word_space(tokenizer, text[:499], drop=1).tokens) == 499


@pytest.mark.parametrize("looks", [1, 150_000])  # of 240,000
def test_of_a_long_string_little_is_done_once_a_limit_has_passed(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a sweep over its places."""
    tokens, clock = 6_000, Clock(looks)
    rnn = export_rnn(build_model(get_config("gpt", TASK, n_layers=1, n_ctx=tokens + 9)))
    monkeypatch.setattr(deadline, "now", clock)
    sys.setprofile(clock.count)
    try:
        with contextlib.suppress(CertifyError):  # there is no time to see what is predicted
            certify(rnn, "[()()]" * (tokens // 6), None, "dup:1", time_limit=1.0)
    finally:
        sys.setprofile(None)
    assert clock.left < 0
    assert clock.calls < CALLS
