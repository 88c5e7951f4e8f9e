"""Kinds of model that somebody else brings: made, asked about and judged as ours are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from tl_dyck import build_model, get_config
from tl_dyck.judge import (
    Case,
    CaseKind,
    Fact,
    JudgeError,
    Question,
    judge_method,
    list_kinds,
    make_case,
    register_kind,
    score_heads,
)
from tl_dyck.judge.cases import case_kinds, group_of
from tl_dyck.judge.suites import Suite
from tl_dyck.kit.registry import RegistryError, UnknownNameError
from tl_dyck.tasks import load_task

TASK = load_task("dyck-2-4")


def decoys(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A head that is heard, and one that is not."""
    generator = torch.Generator().manual_seed(seed)
    model = build_model(get_config("gpt", TASK, n_layers=1, n_heads=2), seed=seed)
    model.double().eval().requires_grad_(False).blocks[0].attn.W_O[1] = 0
    tokens = TASK.sample(8, generator=generator)[:, : given.get("length", 6) + 1]
    facts = [Fact(Question("needed", (0, head)), head == 0, "built so") for head in range(2)]
    return Case(model, TASK, 6, tokens), facts


@pytest.fixture(autouse=True)
def own_kind() -> Iterator[None]:
    kind = CaseKind(make=decoys, knobs=["length"], group=lambda kind: "trained")
    register_kind("decoys")(kind)
    yield
    case_kinds.unregister("decoys")


@score_heads(above=1e-6)
def without(case: Case) -> list[list[float]]:
    """How much logits change if a head puts out nothing."""
    hook = "blocks.0.attn.hook_z"

    def change(head: int) -> float:
        def remove(z: torch.Tensor, hook: Any) -> torch.Tensor:
            z[:, :, head] = 0
            return z

        changed = case.model.run_with_hooks(case.tokens, fwd_hooks=[(hook, remove)])
        return float((changed - case.model(case.tokens)).abs().max())

    return [[change(head) for head in range(2)]]


def test_a_kind_of_ones_own_is_made_and_judged() -> None:
    assert "decoys" in list_kinds()
    case, facts = make_case("decoys", 0, length=4)
    assert case.tokens.shape == (8, 5)
    assert [fact.answer for fact in facts] == [True, False]
    table = judge_method(without, Suite(name="mine", sizes={"decoys": 3}))
    # its models have the columns of trained ones, for it says so
    assert table.index.tolist() == ["needed, trained"]
    assert table.loc["needed, trained", "auroc"] == 1
    assert table.loc["needed, trained", ["false_alarms", "misses"]].tolist() == [0, 0]
    with pytest.raises(UnknownNameError, match="unknown knob of decoys 'depth'"):
        make_case("decoys", 0, depth=4)


def test_who_says_no_group_is_with_built_models_and_what_is_gone_is_no_error() -> None:
    assert CaseKind(make=decoys).group("decoys") == ""
    assert group_of("decoys") == "trained"
    assert group_of("gone") == ""  # as in a judgement that somebody else made
    with pytest.raises(UnknownNameError, match="unknown kind of case 'gone'"):
        make_case("gone", 0)


def test_what_is_no_kind_or_makes_no_case_is_refused_in_a_line() -> None:
    with pytest.raises(RegistryError, match=r"'bare' is no CaseKind, but .*decoys"):
        register_kind("bare")(decoys)
    made: Any
    for made in (None, (None, []), (make_case("uniform", 0)[0], None), (make_case("uniform", 0))):
        register_kind("odd", replace=True)(CaseKind(make=lambda *_, made=made: made))
        with pytest.raises(
            JudgeError, match=r"kind 'odd' makes .*, not a Case and a list of Facts"
        ):
            make_case("odd", 0)
    case_kinds.unregister("odd")
