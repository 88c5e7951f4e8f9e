"""Our class is TransformerLens 3's: weights, numbers, names.

On TransformerLens 3 bit for bit, beside the class that is installed; on 4 by what 3.9.0 answered to
the same questions, which `tests.models.hooked.recorded` keeps.
"""

from __future__ import annotations

import inspect
from importlib import metadata
from typing import Any

import pytest
import torch
import transformer_lens

from tests.cases import case
from tests.models.hooked import options
from tests.models.hooked.questions import NAMES, QUESTIONS
from tests.models.hooked.recorded import RELEASE, differences, recorded, signatures
from tests.models.hooked.twins import same
from tl_dyck.kit.errors import DyckError
from tl_dyck.models import DyckTransformer
from tl_dyck.models import hooked as theirs
from tl_dyck.models.hooked import installed
from tl_dyck.models.hooked import own as ours
from tl_dyck.models.hooked.own import UnsupportedOptionError

BESIDE = installed.MAJOR < 4  # TransformerLens has the class
#: Earlier releases of 3 have other names; ours is held to them beside them.
KEPT = not BESIDE or metadata.version("transformer_lens") == RELEASE
NOT_TAKEN = {
    "generate": ("generation_kwargs", "use_past_kv_cache", "padding_side"),
    "forward": ("past_kv_cache",),
    "input_to_embed": ("past_kv_cache",),
}

#: Of models of the table, whose logits are held to another reference by `test_accounts`.
MORE = [f"table: {name}" for number, name in enumerate(NAMES) if number % 3]


@pytest.mark.bits
@pytest.mark.global_rng
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(question, marks=[pytest.mark.slow] if question in MORE else [])
        for question in QUESTIONS
    ],
)
def test_ours_answers_what_theirs_does(question: str) -> None:
    mine = QUESTIONS[question](ours)
    if BESIDE:
        assert same(mine, QUESTIONS[question](theirs))
    if KEPT:
        assert differences(question, mine) == []


@pytest.mark.skipif(not KEPT, reason="the record is of another table")
@pytest.mark.global_rng
@pytest.mark.parametrize("option", options.BY_OPTION)
def test_what_theirs_takes_ours_takes_or_refuses_by_name(option: str) -> None:
    for asked in options.BY_OPTION[option]:
        name = options.name(*asked)
        if recorded()["forms"][name] == "None":
            continue  # refused by TransformerLens 3.9 itself
        said = refusal(options.config(*asked))
        if said is None:
            assert differences(name, options.ask(ours, *asked)) == [], name
            continue
        given = options.TOGETHER.get(option, {option: asked[1]})
        assert any(said.startswith(f"{each}={given[each]!r}") for each in given)
        assert "plain decoder" in said or "normalization_type=None" in said
        assert "\n" not in said
        assert option in options.REFUSED


def refusal(values: dict[str, Any]) -> str | None:
    """What is said of such a configuration where it is refused."""
    try:
        ours.HookedTransformerConfig(**values)
    except UnsupportedOptionError as error:
        return str(error)
    return None


def test_every_option_of_theirs_is_in_the_table() -> None:
    assert set(recorded()["options"]) == set(options.VALUES)


def test_nothing_is_passed_over_in_a_dictionary_of_options() -> None:
    values = options.config("d_model", 8, False)
    for take in (ours.HookedTransformerConfig.from_dict, ours.HookedTransformerConfig.unwrap):
        assert take(values).d_model == 8
        with pytest.raises(UnsupportedOptionError, match="use_local_attn=True"):
            take({**values, "use_local_attn": True})
        with pytest.raises(TypeError, match="use_locale_attn"):
            take({**values, "use_locale_attn": True})
    with pytest.raises(DyckError, match="parallel_attn_mlp=True"):
        ours.HookedTransformer({**values, "parallel_attn_mlp": True})


@pytest.mark.skipif(
    metadata.version("transformer_lens") != RELEASE, reason=f"asks TransformerLens {RELEASE} again"
)
@pytest.mark.global_rng
def test_the_record_is_what_theirs_answers() -> None:
    """Of a few questions: so that who forgets to record anew is told."""
    import dataclasses

    kept = recorded()
    assert set(kept["forms"]) == {*QUESTIONS, *(options.name(*each) for each in options.TABLE)}
    for question in list(QUESTIONS)[::9]:
        assert differences(question, QUESTIONS[question](theirs)) == []
    for asked in options.TABLE[::5]:
        assert differences(options.name(*asked), options.ask(theirs, *asked)) == []
    assert kept["signatures"] == signatures(transformer_lens.HookedTransformer)
    known = [each.name for each in dataclasses.fields(theirs.HookedTransformerConfig)]
    assert kept["options"] == known


def test_ours_computes_nothing_by_theirs() -> None:
    model: Any = case("gpt").build()
    kinds = {type(module).__module__ for module in model.modules()}
    assert not any(where.startswith("transformer_lens.components") for where in kinds)
    if BESIDE:
        assert isinstance(model, transformer_lens.HookedTransformer)
        assert isinstance(model.cfg, transformer_lens.HookedTransformerConfig)
        plain: Any = case("relu").build()
        assert type(plain) is transformer_lens.HookedTransformer
        assert {type(block) for block in plain.blocks} == {theirs.TransformerBlock}


def test_what_theirs_is_called_with_ours_takes_in_the_same_order() -> None:
    """So that tools that are written for theirs can call ours."""
    live = signatures(transformer_lens.HookedTransformer) if BESIDE else recorded()["signatures"]
    for name, wanted in live.items():
        if hasattr(DyckTransformer, name) or BESIDE:
            own = list(inspect.signature(getattr(DyckTransformer, name)).parameters)
            if "kwargs" not in own:  # which are handed on
                given = [each for each in wanted if each not in NOT_TAKEN.get(name, ())]
                assert [each for each in own if each in given] == given, name


@pytest.mark.parametrize("at", [0, 7, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_change_of_a_hundredth_is_seen(at: int, dtype: torch.dtype) -> None:
    """In any number of a tensor: by what the record keeps of it."""
    from tests.models.hooked.recorded import summary

    kept = torch.linspace(-1, 1, 50, dtype=torch.float64).to(dtype)
    changed = kept.clone()
    changed[at] *= 1.01
    (_, before, _), (_, after, errors) = summary([kept]), summary([changed])
    seen = [abs(a - b) > error for a, b, error in zip(before, after, errors, strict=True)]
    assert any(seen)
    assert summary(torch.tensor([1.0, float("nan")]))[0] != summary(torch.ones(2))[0]
