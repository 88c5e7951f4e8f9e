"""Of a model whose weights are no numbers nothing is measured, by any public function.

Every public function that takes a model gets one of NaN, and one with an infinite weight among the
queries, of which a model makes a head that attends to nothing, and numbers in silence.
"""

from __future__ import annotations

import contextlib
import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.arguments import calls
from tests.arguments.__main__ import call, made, makers
from tests.arguments.public import Public, public
from tl_dyck import ablation, attention_variation, load_task, probes, stack_likeness
from tl_dyck.kit.errors import DyckError
from tl_dyck.models import build_model, get_config
from tl_dyck.models.bridge import NoBridgeError
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.studies.measurement import variation_by_layer

#: What measures nothing: the model handed on, drawn as it is, or kept for later, when it is asked.
NO_MEASURE = {
    *("as_bridge", "models.lean_logits", "models.construct.decoy_head", "certify.Asker"),
    *(
        "save_model",
        "certify.Asker.of",
        "text.Attack",
        "text.IntervalBound",
        "text.CertifiedSentences",
    ),
    *(f"report.widgets.{name}" for name in ("attention", "attention_seeds", "certificate")),
    *("report.widgets.circuitsvis_attention", "report.widgets.circuitsvis_tokens"),
}
#: What answers that there is no number, or that it is not so.
ANSWERS = {
    "models.construct.balance_residual": math.isnan,
    "models.construct.satisfies_balance": lambda found: not found,
}
MODELS = ("model", "model_or_rnn", "rnn_or_model", "before", "after", "models")
SAID = r"nan or infinite|not finite"
SPOILT = {"NaN": (math.nan, "all"), "an infinite query": (math.inf, "W_Q")}


def spoilt(model: Any, value: float, where: str) -> Any:
    """A copy with other weights; of a list each. An RNN is made of finite weights alone."""
    if isinstance(model, list):
        return [spoilt(each, value, where) for each in model]
    if isinstance(model, TwoLayerRNN):
        return None
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if where == "all":
                weight.fill_(value)
            elif where in name:
                weight.view(-1)[0] = value
    return model


CALLS = [(each, name) for each in public() for name in MODELS if name in
         {parameter.name for parameter in each.parameters}]  # fmt: skip


@pytest.mark.global_rng
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("each", "name"), CALLS, ids=lambda each: getattr(each, "name", each))
def test_nothing_is_measured(
    each: Public, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, how in SPOILT.items():
        arguments = made(makers(each))
        if name not in arguments or (bad := spoilt(arguments[name], *how)) is None:
            return
        arguments[name] = bad
        if each.name in ANSWERS:
            assert ANSWERS[each.name](call(each, arguments)), words
        elif each.name in NO_MEASURE:
            with contextlib.suppress(ValueError, NoBridgeError):
                call(each, arguments)
        else:
            with pytest.raises((DyckError, ValueError), match=SAID) as refused:
                call(each, arguments)
            assert "\n" not in str(refused.value), words


def test_many_are_asked() -> None:
    asked = {each.name for each, _ in CALLS}
    assert {"frozen_importance", "stack_likeness", "probes.call_probe", "text.accuracy"} <= asked
    assert len(asked) > 40
    assert asked >= NO_MEASURE | ANSWERS.keys()


@pytest.mark.parametrize("how", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("name", probes.list_probes())
def test_no_probe_measures_it(name: str, how: tuple[float, str]) -> None:
    bad = spoilt(calls.minimal(), *how)
    models = [bad] * (1 + probes.takes_many(probes.load_probe(name)))
    with pytest.raises(ValueError, match=SAID):
        probes.call_probe(name, models)


def overflowing() -> Any:
    """Finite weights, and scores that are not."""
    model = build_model(get_config("gpt", load_task("dyck-2-4")))
    with torch.no_grad():
        for block in model.blocks:
            for weight in (block.attn.W_Q, block.attn.W_K):
                weight.mul_(1e25)
    return model


def test_patterns_of_scores_that_are_no_numbers_are_none() -> None:
    bad = overflowing()
    assert np.isnan(stack_likeness(bad, load_task("dyck-2-4"), n=5).mass).all()
    assert np.isnan(ablation.attention_entropy(bad, n=5)).all()
    with pytest.raises(ValueError, match="model 0 has attention scores that are NaN"):
        attention_variation([bad, bad])


def test_runs_without_patterns_do_not_vary() -> None:
    """Those that diverged left NaN, and zeros when nobody asked what they were."""
    some = torch.arange(18.0).sin().reshape(2, 1, 1, 3, 3).softmax(-1)
    none = torch.stack([torch.full((1, 1, 3, 3), torch.nan), torch.zeros(1, 1, 3, 3)])
    alone = variation_by_layer(some)
    assert repr(variation_by_layer(torch.cat([none, some]))) == repr(alone) != "[]"
    assert variation_by_layer(none) == []
