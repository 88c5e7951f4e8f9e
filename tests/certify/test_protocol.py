"""`certify`: what it checks before and after a certifier runs, and certifiers of third parties."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import case
from tests.certify.oracles import random_rnn
from tl_dyck.certify import (
    Asker,
    Certificate,
    CertifyError,
    Delete,
    Duplicate,
    PerturbationSpace,
    Substitute,
    apply_edits,
    certifiers,
    certify,
    certify_dyck,
    certify_each,
    certify_many,
    conclude,
    list_certifiers,
    worst_logit_change,
)
from tl_dyck.certify.exact.network import Network
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.models import build_model, get_config
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import load_task

SPACE = PerturbationSpace(
    [(Duplicate(), 1), (Delete([1, 2]), 1), (Substitute({0: [1, 2], 3: [4], 5: [0]}), 1)]
)
STRING = (0, 3, 1, 5)


@pytest.fixture
def registered() -> Iterator[Any]:
    """Register a certifier for the length of a test."""
    names = []

    def register(name: str, certifier: Any) -> None:
        certifiers.register(name)(certifier)
        names.append(name)

    yield register
    for name in names:
        certifiers.unregister(name)


class TestWhatUsersGet:
    def test_the_built_in_certifiers_are_found_by_entry_point(self) -> None:
        assert {"exact", "exhaustive", "interval", "onnx-vnnlib"} <= set(list_certifiers())

    @pytest.mark.parametrize("name", ["exact", "exhaustive", "interval"])
    def test_a_model_and_its_rnn_are_answered_alike(self, name: str) -> None:
        model = case("gpt").build(torch.float64)
        rnn = export_rnn(model)
        tokens = (4, 0, 2, 3, 1)
        space = PerturbationSpace([(Duplicate(), 1)])
        ours, theirs = (
            certify(model, tokens, None, space, name),
            certify(rnn, tokens, None, space, name),
        )
        assert ours.status == theirs.status
        assert ours.lower == theirs.lower
        assert ours.tokens == theirs.tokens == tokens

    def test_the_target_is_what_the_model_predicts(self) -> None:
        rnn = random_rnn(2)
        expected = int(rnn(torch.tensor([STRING]))[0, -1].argmax())
        assert certify(rnn, STRING, None, SPACE).target == expected

    def test_edits_count_from_bos_if_bos_was_given(self) -> None:
        rnn = random_rnn(1, bos_token=6)
        without, with_bos = (
            certify(rnn, STRING, 1, SPACE, tight=True),
            certify(rnn, (6, *STRING), 1, SPACE, tight=True),
        )
        assert without.worst is not None
        assert with_bos.worst is not None
        assert without.worst.edits
        assert with_bos.worst.tokens == (6, *without.worst.tokens)
        assert apply_edits(STRING, without.worst.edits) == without.worst.tokens
        assert apply_edits((6, *STRING), with_bos.worst.edits) == with_bos.worst.tokens

    def test_a_counterexample_carries_the_models_logits(self) -> None:
        model = case("gpt").build(torch.float32)  # not float64: the RNN's logits are others
        rnn = export_rnn(model)
        target = int(model(torch.tensor([[4, 0, 2, 3]]))[0, -1].argmin())
        certificate = certify(model, (0, 2, 3), target, PerturbationSpace([(Duplicate(), 1)]))
        witness = certificate.counterexample
        assert witness is not None
        with torch.no_grad():
            logits = model(torch.tensor([[4, *witness.tokens]]))[0, -1].double()
        assert witness.logits == tuple(logits.tolist())
        assert witness.margin == float(
            logits[target] - logits[torch.arange(len(logits)) != target].max()
        )
        assert rnn.dtype == torch.float32  # what was handed in is left as it was

    def test_certify_leaves_the_rnn_alone(self) -> None:
        rnn = TwoLayerRNN(
            random_rnn(0).config, {n: w.float() for n, w in random_rnn(0).weights.items()}
        )
        before = {name: weight.clone() for name, weight in rnn.weights.items()}
        certify(rnn, STRING, 0, SPACE)
        assert all(torch.equal(before[name], weight) for name, weight in rnn.weights.items())

    def test_one_export_for_everything_that_is_asked_about_a_model(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        exported = []
        monkeypatch.setattr(
            "tl_dyck.certify.questions.export_rnn",
            lambda model: exported.append(model) or export_rnn(model),
        )
        task = load_task("dyck-2-4")
        model = build_model(get_config("minimal-onehot", task, n_layers=1, device="cpu"))
        found = certify_dyck(model, task, prefixes=[[0, 2, 3], [2, 0, 0, 1]], budget=1)
        assert exported == [model]
        asker = Asker(model)
        certificate = certify(asker, (0, 2, 3), 1, found.space)
        worst_logit_change(asker, (0, 2, 3), found.space)
        assert certify_many(asker, [(0, 2, 3)], [1], found.space)[0].lower == certificate.lower
        assert found.rows[0].certificate.lower == certificate.lower
        question = asker.question(found.space)
        assert asker.answer(question, (0, 2, 3), 1).lower == certificate.lower
        assert exported == [model, model]

    @pytest.mark.usefixtures("forked_workers")
    def test_many_strings(self) -> None:
        rnn = random_rnn(5)
        strings = [(0, 3, t, 5) for t in range(6)] * 2
        targets = [0, 1, None] * 4
        one_by_one = [certify(rnn, s, t, SPACE) for s, t in zip(strings, targets, strict=True)]
        for n_jobs in (1, 2):
            many = certify_many(rnn, strings, targets, SPACE, n_jobs=n_jobs)
            assert [(c.status, c.lower, c.upper, c.tokens, c.target) for c in many] == [
                (c.status, c.lower, c.upper, c.tokens, c.target) for c in one_by_one
            ]

    def test_certificates_come_one_by_one(self) -> None:
        """The third string is an error, which must not take the first two with it."""
        each = certify_each(
            random_rnn(0), [(0,), (1, 2), (99,)], None, PerturbationSpace([(Duplicate(), 1)])
        )
        assert next(each).tokens == (0,)
        assert next(each).tokens == (1, 2)
        with pytest.raises(CertifyError, match="token 99"):
            next(each)

    @pytest.mark.parametrize("fails", [False, True])
    def test_one_thread_inside_and_the_users_number_after(
        self, fails: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads, seen = [5], []
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads[0])
        monkeypatch.setattr(torch, "set_num_threads", lambda n: threads.__setitem__(0, n))

        def spy(
            rnn: TwoLayerRNN, tokens: Any, target: int, space: Any, **options: Any
        ) -> Certificate:
            seen.append(torch.get_num_threads())
            if fails:
                raise CertifyError("as asked")
            return conclude(
                rnn, tokens, target, space, certifier="spy", lower=-np.inf, string=None, started=0.0
            )

        with pytest.raises(CertifyError, match="as asked") if fails else contextlib.nullcontext():
            certify(random_rnn(0), STRING, 0, SPACE, spy)
        assert (seen, threads) == ([1], [5])


class TestQuestionsWithoutAnswers:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"tokens": ()}, "an empty string cannot be certified"),
            ({"tokens": (0, 7)}, r"token 7 of the string is not in the vocabulary 0\.\.6"),
            (
                {"space": PerturbationSpace([(Substitute({0: [9]}), 1)])},
                "token 9 of the space sub:1",
            ),
            ({"space": PerturbationSpace([(Delete(None), 4)])}, "holds the empty string"),
            ({"tokens": (0,) * 24}, r"holds strings of 25 tokens .* the model reads 24 \(n_ctx\)"),
            ({"target": 3}, "target 3 is not one of the 3 logits"),
            ({"target": -1}, "target -1"),
            ({"model_or_rnn": random_rnn(0, d_vocab_out=1)}, "single logit"),
            ({"model_or_rnn": random_rnn(0, d_vocab_out=1), "target": None}, "single logit"),
            ({"time_limit": 0.0}, "time_limit must be a finite number of seconds above 0"),
            ({"certifier": "exakt"}, "unknown certifier 'exakt'"),
        ],
    )
    def test_are_refused(self, changes: dict[str, Any], message: str) -> None:
        question = {"model_or_rnn": random_rnn(0), "tokens": STRING, "target": 0, "space": SPACE}
        with pytest.raises((ValueError, UnknownNameError), match=message):
            certify(**question | changes)

    def test_one_target_per_string(self) -> None:
        with pytest.raises(CertifyError, match="2 strings but 1 targets"):
            certify_many(random_rnn(0), [(0,), (1,)], [0], SPACE)

    def test_no_strings_have_no_certificates_and_all_else_is_looked_at(self) -> None:
        assert certify_many(random_rnn(0), [], None, SPACE) == []
        assert certify_many(random_rnn(0), [], [], SPACE, n_jobs=2) == []
        with pytest.raises(CertifyError, match="0 strings but 1 targets"):
            certify_many(random_rnn(0), [], [0], SPACE)
        with pytest.raises(UnknownNameError, match="unknown certifier 'exakt'"):
            certify_many(random_rnn(0), [], None, SPACE, "exakt")


class TestThirdParties:
    def test_a_string_outside_the_space_is_found_out(self, registered: Any) -> None:
        def liar(
            rnn: TwoLayerRNN, tokens: Any, target: int, space: Any, **options: Any
        ) -> Certificate:
            honest = certify(rnn, tokens, target, space, "exact")
            assert honest.worst is not None
            return dataclasses.replace(
                honest, worst=dataclasses.replace(honest.worst, tokens=(2, 2, 2, 2, 2))
            )

        registered("liar", liar)
        with pytest.raises(
            CertifyError, match=r"returned the string \(2, 2, 2, 2, 2\), which is not in"
        ):
            certify(random_rnn(0), STRING, 0, SPACE, "liar")

    def test_a_counterexample_that_is_none_is_withdrawn(self, registered: Any) -> None:
        """It says falsified; the model, asked for its own logits on that string, does not agree."""
        rnn = random_rnn(0)
        target = int(rnn(torch.tensor([STRING]))[0, -1].argmax())

        def liar(
            rnn: TwoLayerRNN, tokens: Any, target: int, space: Any, **options: Any
        ) -> Certificate:
            honest = conclude(
                rnn, tokens, target, space, certifier="liar", lower=-9.0, string=tokens, started=0.0
            )
            return dataclasses.replace(honest, status="refuted", upper=-1.0)

        registered("liar", liar)
        certificate = certify(rnn, STRING, target, SPACE, "liar")
        assert certificate.status == "open"
        assert "its rounding hides the error" in certificate.reason
        assert certificate.worst is not None
        assert certificate.worst.margin > 0

    def test_what_is_no_certificate_is_refused(self, registered: Any) -> None:
        def nothing(*arguments: Any, **options: Any) -> None:
            return None

        registered("nothing", nothing)
        with pytest.raises(TypeError, match="nothing returned a NoneType, not a Certificate"):
            certify(random_rnn(0), STRING, 0, SPACE, "nothing")


def test_an_asker_keeps_its_network_and_another_asker_reads_changed_weights() -> None:
    rnn = random_rnn(0)
    asker = Asker(rnn)
    assert Network.of(asker.rnn) is Network.of(asker.rnn)
    before = certify(asker, STRING, 0, SPACE, tight=True)
    with torch.no_grad():
        rnn.b_U[0] -= 100.0
    assert Network.of(rnn) is not Network.of(asker.rnn)
    after = certify(rnn, STRING, 0, SPACE, tight=True)
    assert after.lower == pytest.approx(before.lower - 100.0)
