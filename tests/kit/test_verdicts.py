"""One vocabulary for verdicts; the words that stood for them before are understood, and said so."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import pandas as pd
import pytest

from tl_dyck.certify.certificate import Certificate, Witness
from tl_dyck.certify.language import LanguageCertificate
from tl_dyck.kit.verdicts import VERDICTS, as_verdict, read_metrics, read_verdict
from tl_dyck.runs import aggregate, load_results, run_sweep

FORMER = {"certified": "proved", "falsified": "refuted", "unknown": "open"}


def certificate(status: str) -> Certificate:
    low, high = {"proved": (1.0, 2.0), "refuted": (-2.0, -1.0), "open": (-1.0, 1.0)}[status]
    return Certificate(
        status=status,  # type: ignore[arg-type]
        tokens=(1,),
        target=0,
        lower=low,
        upper=high,
        worst=Witness(tokens=(1,), margin=high),
        certifier="x",
        space="pairs:1",
        seconds=0.0,
    )


def test_there_are_three_everywhere() -> None:
    assert VERDICTS == ("proved", "refuted", "open")
    statuses = {
        kind: next(each for each in dataclasses.fields(kind) if each.name == "status").type
        for kind in (Certificate, LanguageCertificate)
    }
    assert set(statuses.values()) == {"Verdict"}


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_former_word_is_equal_and_says_what_it_is_called(former: str, now: str) -> None:
    found = certificate(now)
    with pytest.warns(DeprecationWarning, match=f"'{former}' is called '{now}' now"):
        assert found.status == former
    with pytest.warns(DeprecationWarning, match="called"):
        assert (found.status != former) is False
    others = [each for word, each in FORMER.items() if word != former]
    for other in others:
        with pytest.warns(DeprecationWarning, match="called"):
            assert certificate(other).status != former


@pytest.mark.parametrize("word", VERDICTS)
def test_a_verdict_is_the_text_it_was(word: str) -> None:
    found = certificate(word).status
    assert found == word
    assert word == found
    assert {found: 1}[word] == 1  # type: ignore[index]
    assert (repr(found), f"{found}", json.dumps(found)) == (f"'{word}'", word, f'"{word}"')
    again = pickle.loads(pickle.dumps(found))
    assert again == word
    with pytest.warns(DeprecationWarning, match="called"):
        assert again == {now: then for then, now in FORMER.items()}[word]
    assert found != "certain"
    assert found != 3


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_certifier_may_still_say_the_former_word(former: str, now: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"called '{now}' now"):
        assert dataclasses.replace(certificate(now), status=former).status == now


@pytest.mark.parametrize("word", ["", "Proved", "sure", None, 1, ["proved"]])
def test_other_words_are_refused(word: object) -> None:
    with pytest.raises(ValueError, match="a verdict is one of proved, refuted, open, not"):
        as_verdict(word)


def test_what_was_saved_is_read_in_todays_words() -> None:
    said = [*FORMER, "proved", "n"]
    assert [*map(read_verdict, said)] == [*FORMER.values(), "proved", "n"]
    kept = {"certified_share": 0.5, "falsified_share": 0.25, "accuracy": 1.0}
    assert read_metrics(kept, "mine") == {
        "proved_share": 0.5,
        "refuted_share": 0.25,
        "accuracy": 1.0,
    }
    assert read_metrics({"certified dup:1": 0.5}, "sentences") == {"proved dup:1": 0.5}
    # a metric of somebody else's experiment keeps its name
    for theirs in ({"certified dup:1": 0.5}, {"certified_share": 0.5}):
        assert read_metrics(theirs, "mine") == theirs


def measured(point: object, seed: int, folder: Path) -> dict[str, float]:
    return {"certified_share": seed / 2, "falsified_share": 0.0}


def test_a_sweep_that_was_recorded_in_former_words(tmp_path: Path) -> None:
    run_sweep({"seeds": 3}, tmp_path, experiment=measured, n_jobs=1, progress=False)
    found = load_results(tmp_path)
    assert found["proved_share"].tolist() == [0.0, 0.5, 1.0]
    now = aggregate(found, ["proved_share"])
    with pytest.warns(DeprecationWarning, match="'certified_share' is called 'proved_share' now"):
        before = aggregate(found, ["certified_share"])
    pd.testing.assert_frame_equal(now, before)
