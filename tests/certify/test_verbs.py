"""Each verb says what the function says that it stands for; all verdicts have the same names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tl_dyck
from tl_dyck import (
    UnknownNameError,
    check,
    construct,
    decide,
    edits,
    load_task,
    prefixes,
    prove,
    sample,
)
from tl_dyck.certify import CertifyError, certify_edits, language, verbs, worst_logit_change
from tl_dyck.certify.check_model import verdict
from tl_dyck.kit.verdicts import VERDICTS

TASK = load_task("dyck-2-4")
MODELS = {
    "uniform": construct.uniform_attention(TASK.language),
    "two layers": construct.uniform_attention(TASK.language, first_layer="attention"),
    # random weights, most of whose claims are false
    "random": tl_dyck.build_model(tl_dyck.get_config("minimal-onehot", TASK)),
}


def timeless(found: Any) -> Any:
    return replace(found, seconds=0.0)


@pytest.mark.parametrize(
    ("name", "text", "space", "claim"),
    [
        *(("uniform", "[()[]", "pairs:2", claim) for claim in (None, "]", 1)),
        *(("random", "[", "pairs:1", claim) for claim in (None, "]", 1)),
        *((name, "(", "swap:1", None) for name in ("uniform", "random")),
    ],
)
def test_decide_edits(name: str, text: str, space: str, claim: Any) -> None:
    found: Any = decide(MODELS[name], edits(text, space), claim, tight=True)
    assert timeless(found) == timeless(certify_edits(MODELS[name], text, claim, space, tight=True))
    assert (found.low, found.high) == (found.lower, found.upper)
    assert found.low - 1e-5 <= found.worst.margin <= found.high + 1e-5  # the model is float32


@pytest.mark.parametrize(
    ("name", "lengths", "claim"),
    [
        *(("uniform", 4, None), ("uniform", [3, 5], "valid_token")),
        *(("two layers", [3, 4], None), ("random", 4, "valid_token")),
    ],
)
def test_decide_prefixes(name: str, lengths: Any, claim: str | None) -> None:
    model = MODELS[name]
    for strings in (prefixes("dyck-2-4", lengths), (TASK, lengths)):
        found = decide(model, strings, claim)
        called = tl_dyck.certify_language(model, TASK, lengths, claim or "any_token")
        assert timeless(found) == timeless(called)
        assert (found.low, found.high) == found.margin
        assert found.worst == found.tightest
        assert found.worst is not None
        assert found.worst.margin == found.high


def test_all_three_verdicts() -> None:
    assert decide(MODELS["uniform"], (TASK, 6)).status == "proved"
    assert decide(MODELS["random"], (TASK, 6)).status == "refuted"
    assert decide(MODELS["two layers"], (TASK, 12), most_run=0, time_limit=1e-9).status == "open"


def test_proofs_and_their_check(tmp_path: Any) -> None:
    model = MODELS["uniform"]
    asked = {
        "edits": (edits("[()[]", "pairs:1"), tl_dyck.prove_edits(model, "[()[]", None, "pairs:1")),
        "prefixes": (prefixes(TASK, 8), tl_dyck.prove_language(model, TASK, 8)),
    }
    for name, (strings, proof) in asked.items():
        found = prove(model, strings)
        assert found.content == proof.content
        file = found.save(tmp_path / name)
        checked = check(file)
        assert (checked.status, checked.low) == ("proved", 0.0)
        assert verdict(file) == (True, checked.reason)
        file.write_bytes(found.content[:-1] + b"?")
        checked = check(file)
        assert (checked.status, checked.low) == ("open", -float("inf"))
        assert verdict(file) == (False, checked.reason)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        check(tmp_path / "nowhere")
    saved = tl_dyck.save_model(MODELS["random"], tmp_path / "model")
    other = check(proof.save(tmp_path / "whose"), saved)  # a model that it is not about
    assert other.status == "open"
    assert "in the model, but not in the proof" in other.reason
    proof.save(tmp_path / "large")
    assert "--work allows more" in check(tmp_path / "large", work=1.0).reason


def test_a_number_means_every_length_in_a_sample_too() -> None:
    model = MODELS["random"]
    found = sample(model, prefixes(TASK, 3), n=50, seed=1)
    assert found == tl_dyck.sample_error(model, TASK, [1, 2, 3], n=50, seed=1)
    assert sample(model, (TASK, [3]), n=50, seed=1) == found[2:]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CertifyError, match="have no probability"):
        sample(MODELS["uniform"], edits("[", "pairs:1"))
    for verb in (decide, prove, sample):
        with pytest.raises(CertifyError, match="a claim about prefixes is a name"):
            verb(MODELS["uniform"], prefixes(TASK, 3), 1)
        with pytest.raises(TypeError, match="a pair of task and lengths, got"):
            verb(MODELS["uniform"], "[()[]")
    with pytest.raises(UnknownNameError, match="bicycle"):
        decide(MODELS["uniform"], ("bicycle", 3))


def test_every_verdict_has_the_same_names() -> None:
    model = MODELS["uniform"]
    edited: Any = decide(model, edits("[", "pairs:1"))
    whole: Any = decide(model, (TASK, 3))
    assert isinstance(edited, tl_dyck.certify.Certificate)
    assert isinstance(whole, language.LanguageCertificate)
    found: list[verbs.Decided] = [edited, whole]
    for each in found:
        assert each.status in VERDICTS
        assert each.low <= each.high
        assert each.seconds >= 0
        assert isinstance(each.reason, str)
        assert {"tokens", "margin"} <= set(dir(each.worst))
    assert not {"low", "high"} & {*edited.to_dict(), *whole.to_dict()}  # saved as ever
    space = tl_dyck.parse_space("pairs:1", language=TASK.language)
    change = worst_logit_change(model, (0,), space)
    assert (change.low, change.high) == (change.seen, change.proved)
