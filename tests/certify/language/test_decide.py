"""Whole languages decided, against every prefix run through the model one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import thinned
from tl_dyck.certify import CertifyError
from tl_dyck.certify.language import CLAIMS, LanguageCertificate, certify_language, shells
from tl_dyck.models import DyckTransformer, build_model, construct, get_config
from tl_dyck.rnn import export_rnn
from tl_dyck.tasks import DyckTask, load_task

TASK = load_task("dyck-2-4")


def task_of(k: int, deepest: int, q: float = 0.5, **fields: Any) -> DyckTask:
    return DyckTask(
        name="small", n_types=k, max_depth=deepest, q=q, long_lengths=(40, 41), **fields
    )


def random_model(
    family: str, task: DyckTask, seed: int, scale: float = 4.0, **options: Any
) -> DyckTransformer:
    values = {"n_layers": 1, "d_model": 50, "d_mlp": 9, "n_ctx": 64, **options}
    config = get_config(family, task, dtype=torch.float64, device="cpu", **values)
    model = build_model(config, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.mul_(scale)
    return model


def make_same(two: DyckTransformer, one: DyckTransformer) -> None:
    """Give two layers the weights of one, and a second layer that does nothing."""
    with torch.no_grad():
        state = {n: w for n, w in one.state_dict().items() if n in two.state_dict()}
        two.load_state_dict({**two.state_dict(), **state})
        for name, weight in two.blocks[1].named_parameters():
            if name.split(".")[-1] in ("W_O", "b_O", "W_out", "b_out"):
                weight.zero_()


def prefixes(task: DyckTask, length: int) -> torch.Tensor:
    """All prefixes of a length, BOS first."""
    strings = task.language.enumerate(length, "prefix")
    return torch.nn.functional.pad(strings, (1, 0), value=task.language.bos_token)


def last(model: DyckTransformer, tokens: torch.Tensor) -> torch.Tensor:
    """What is predicted after strings of one length."""
    with torch.no_grad():
        return torch.cat([model(part)[:, -1] for part in tokens.split(4096)])


def margins(model: DyckTransformer, task: DyckTask, length: int, name: str) -> Any:
    """Every prefix of a length that leaves a bracket open, its margin and its probability."""
    language, tokens = task.language, prefixes(task, length)
    tokens = tokens[language.depth(tokens)[:, -1] > 0]
    strings, logits = tokens[:, 1:], last(model, tokens)
    top = language.top_of_stack(strings)[:, -1]
    right = strings.gather(1, top[:, None]) + 1
    own = logits.gather(1, right)
    others = logits.scatter(1, right, -torch.inf)
    if name == "closing_only":
        others = others[:, 1 : 2 * language.n_types : 2]
    mass = task.distribution.log_prob(strings).exp()
    depth = language.depth(strings)[:, -1]
    return strings, (own - others.max(1, keepdim=True).values)[:, 0].numpy(), mass.numpy(), depth


def check(
    found: LanguageCertificate, model: DyckTransformer, task: DyckTask, longest: int, name: str
) -> None:
    """Everything that a certificate says, against all prefixes."""
    wrong: list[tuple[float, int, str]] = []
    least = np.inf
    rows = {row.length: row for row in found.by_length}
    for length in range(1, longest + 1):
        strings, margin, mass, depth = margins(model, task, length, name)
        weight = mass * (1 - task.distribution.open_probability())[depth]
        bad = margin < 0
        if not len(strings):  # of depth 1 at most, and of even length
            assert length not in rows
            continue
        assert rows[length].prefixes == len(strings)
        assert rows[length].wrong == bad.sum()
        assert rows[length].error.exact
        assert rows[length].error.low == pytest.approx(weight[bad].sum() / weight.sum(), rel=1e-9)
        least = min(least, margin.min())
        texts = [task.language.to_string(string) for string in strings[torch.tensor(bad)]]
        wrong += [(-p, length, text) for p, text in zip(mass[bad], texts, strict=True)]
    assert found.margin.high == pytest.approx(least, abs=1e-9)
    assert found.margin.high - 1e-3 <= found.margin.low <= found.margin.high
    assert found.status == ("refuted" if wrong else "proved")
    assert found.proved_to == min((length - 1 for _, length, _ in wrong), default=longest)
    if wrong:
        assert found.likeliest is not None
        assert found.shortest is not None
        assert found.is_likeliest
        assert found.likeliest.probability == pytest.approx(-min(wrong)[0], rel=1e-9)
        assert found.likeliest.text in {text for _, _, text in wrong}
        assert found.shortest.text in {t for _, n, t in wrong if n == found.proved_to + 1}


FAMILIES = [
    ("minimal-onehot", 4.0), ("minimal-onehot", 1.0), ("minimal-split", 4.0), ("figure2-yao", 3.0),
    ("eq49", 4.0), ("minimal-uniform", 4.0), ("gpt", 4.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "scale", "name", "boxes"),
    thinned(
        (*each, ("any_token", "closing_only")[(i + boxes) % 2], boxes)
        for boxes in (False, True)
        for i, each in enumerate(FAMILIES)
        # gpt's normalisation has no form that boxes bound
        if not (boxes and each[0] in ("gpt", "minimal-uniform"))
    ),
)
def test_a_family_is_decided_as_by_brute_force(
    family: str, scale: float, name: str, boxes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By listing profiles, and by boxes of them, which are not needed at these lengths."""
    if boxes:
        monkeypatch.setattr(shells, "_FEW", 0)
        monkeypatch.setattr(shells, "_SMALL", 1)
    model = random_model(family, TASK, seed=1, scale=scale)
    found = certify_language(model, TASK, 5, name)
    assert (found.stats["boxes"] > 50) is boxes
    check(found, model, TASK, 5, name)


@settings(max_examples=4)
@given(
    k=st.integers(1, 3),
    deepest=st.integers(1, 3),
    q=st.sampled_from([0.2, 0.5, 0.9]),
    family=st.sampled_from(["minimal-onehot", "eq6", "minimal-yao"]),
    seed=st.integers(0, 99),
)
def test_small_languages_are_decided_as_by_brute_force(
    k: int, deepest: int, q: float, family: str, seed: int
) -> None:
    task = task_of(k, deepest, q)
    model = random_model(family, task, seed)
    check(certify_language(model, task, 5), model, task, 5, "any_token")


def test_two_types_and_depth_four_to_length_nine() -> None:
    model = construct.balanced(TASK.language, seed=0, spread=1.0)
    with torch.no_grad():  # hardly balanced any more
        model.blocks[0].attn.W_V[0, 3] *= 1.9
    found = certify_language(model, TASK, 9)
    assert 2 <= found.proved_to < 9
    check(found, model, TASK, 9, "any_token")


@pytest.mark.parametrize(
    "make", [construct.uniform_attention, construct.balanced], ids=["uniform", "balanced"]
)
def test_constructions_are_proved(make: Callable[..., DyckTransformer]) -> None:
    found = certify_language(make(TASK.language), TASK, 16)
    assert found.status == "proved"
    assert found.proved_to == 16
    assert found.margin.high == pytest.approx(np.log(2), abs=1e-9)  # 1/2 against 1/4
    assert found.stats["boxes"] > 0
    assert all(row.error == (0, 0) for row in found.by_length)


@pytest.mark.parametrize("mode", ["complete", "prefix"])
def test_accuracy_is_what_sampling_estimates(mode: str) -> None:
    lengths = (2, 6, 10) if mode == "complete" else (1, 2, 5, 9)
    task = task_of(2, 3, 0.4, mode=mode, train_lengths=lengths)
    model = random_model("minimal-onehot", task, seed=3)
    sampled = task.closing_accuracy(model, n=8_000)
    for name in ("any_token", "closing_only"):
        found = certify_language(model, task, 9, name)
        assert found.accuracy is not None
        assert found.accuracy.exact
        assert found.accuracy.low == pytest.approx(getattr(sampled, name), abs=0.02)
        assert 0.02 < found.accuracy.low < 0.98


def test_the_rest_is_bounded_when_time_runs_out() -> None:
    model = construct.balanced(TASK.language)
    found = certify_language(model, TASK, 12, time_limit=1e-9)
    assert found.status == "open"
    assert found.proved_to == -1 or found.proved_to == 0
    assert "not all was decided in time" in found.reason
    assert all(row.error == (0, 1) for row in found.by_length if not row.decided)
    part = certify_language(model, TASK, 10)
    assert part.accuracy is not None
    assert 0.5 < part.accuracy.low < part.accuracy.high == 1


def test_ties_are_left_open() -> None:
    task = task_of(1, 3)  # one type: after [ both brackets have probability 1/2
    found = certify_language(construct.uniform_attention(task.language), task, 6)
    assert found.status == "open"
    assert "a tie" in found.reason


def test_without_counting_it_stops_at_the_likeliest_error() -> None:
    model = random_model("minimal-onehot", TASK, seed=0)
    whole, quick = (
        certify_language(model, TASK, 14, until=until) for until in ("counted", "likeliest")
    )
    assert whole.likeliest == quick.likeliest
    assert "likeliest error" in repr(whole)
    assert whole.to_dict()["likeliest"]["text"] == whole.likeliest.text  # type: ignore[union-attr]
    assert quick.is_likeliest
    assert quick.stats["evaluations"] < whole.stats["evaluations"] / 10
    assert quick.by_length[-1].error == (0, 1)


def test_an_rnn_will_do_and_lengths_may_be_chosen() -> None:
    model = random_model("minimal-onehot", TASK, seed=2)
    whole = certify_language(model, TASK, 9)
    some = certify_language(export_rnn(model), "dyck-2-4", [9, 4])
    assert [row for row in whole.by_length if row.length in (4, 9)] == list(some.by_length)


@pytest.mark.usefixtures("forked_workers")
def test_processes_share_the_work_and_stop_together() -> None:
    model = random_model("minimal-onehot", TASK, seed=1)
    one, two = (certify_language(model, TASK, 6, n_jobs=jobs) for jobs in (1, 2))
    assert one.to_dict() | {"seconds": 0} == two.to_dict() | {"seconds": 0}
    some = certify_language(model, TASK, 8, n_jobs=2, until="refuted")
    assert some.status == "refuted"
    assert not some.by_length[-1].decided


def test_progress_is_told() -> None:
    told: list[float] = []
    certify_language(construct.balanced(TASK.language), TASK, 6, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


# --- lengths that were left out -------------------------------------------------------------------


#: At depth 1 claims about closing brackets say nothing of some lengths; one other stands for all.
GAPS = [
    *[(name, task_of(2, 3)) for name in CLAIMS],
    *[(name, task_of(2, 1)) for name in ("any_token", "closing_only", "kl")],
]


#: What is decided by profiles, by running all, and by bounds of profiles.
WAYS: list[dict[str, Any]] = [{}, {"position": "learned"}, {"n_layers": 2}]


@pytest.mark.parametrize(
    ("name", "task", "options"),
    [(name, task, WAYS[i % len(WAYS)]) for i, (name, task) in enumerate(GAPS)],
    ids=[f"{name}-depth-{task.max_depth}" for name, task in GAPS],
)
def test_what_is_proved_has_no_gaps(name: str, options: dict[str, Any], task: DyckTask) -> None:
    """Of any lengths: `proved_to` is how far it goes with nothing wrong and nothing left out."""
    model = random_model("gpt", task, 3, **options)
    about: dict[str, Any] = {"epsilon": 0.8} if name in ("kl", "total_variation") else {}
    about |= {"agree": {"other": random_model("gpt", task, 4, **options)}}.get(name, {})
    about |= {"head": {"head": (0, 0)}}.get(name, {})
    whole = certify_language(model, task, 4, name, **about)
    right = {row.length: row.wrong == 0 for row in whole.by_length}
    for length in range(5):
        closing = name in ("any_token", "closing_only")
        if closing and (length == 0 or (task.max_depth == 1 and length % 2 == 0)):
            assert length not in right
            with pytest.raises(CertifyError, match=f"{name} says nothing of"):
                certify_language(model, task, [length], name)
        else:
            assert length in right
    for lengths in ([0, 1, 2, 3, 4], [1, 3], [0, 1, 3, 4]):
        found = whole
        if lengths != [0, 1, 2, 3, 4]:
            found = certify_language(model, task, lengths, name, **about)
        shorter = [n for n in right if n < lengths[-1]]
        left_out = [n for n in shorter if n not in lengths]
        assert found.gap == min(left_out, default=None)
        fails = [n for n in lengths if n in right and not right[n]]
        stop = min([*left_out, *fails], default=lengths[-1] + 1)
        assert found.proved_to == max((n for n in lengths if n < stop), default=-1)
        proved = dict(found.summary())["proved"]
        if found.status == "proved" and left_out:
            assert proved.startswith("up to length" if found.proved_to == lengths[-1] else "length")
