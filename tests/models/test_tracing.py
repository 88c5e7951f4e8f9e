"""What torch does with a model beside running it: it traces it, or maps it over tokens."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tl_dyck import build_model, construct, export_rnn, get_config, load_task
from tl_dyck_text.model import TextConfig, build_text_model

TASK = load_task("dyck-2-4")
TOKENS = torch.tensor([[4, 0, 2, 3], [4, 0, 1, 2]])
MODELS = {
    **{
        name: lambda name=name: build_model(get_config(name, TASK))
        for name in ("gpt", "minimal-split", "minimal-yao", "eq49")
    },
    "constructed": lambda: construct.uniform_attention(TASK.language),
    "sentences": lambda: build_text_model(
        TextConfig(words=("<unk>", "<cls>", "a", "b", "c"), d_model=8)
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


def exported(model: nn.Module) -> Callable[[Tensor], Tensor]:
    sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    return torch.export.export(model, (TOKENS,), dynamic_shapes=sizes).module()


def mapped(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return torch.func.vmap(lambda row: model(row[None])[0])


WAYS = [lambda model: make_fx(model)(TOKENS), mapped]
#: Norm, positions and two layers; embeddings by depth, and constants in norms; words.
DIFFERENT = ("gpt", "minimal-yao", "sentences")


@pytest.mark.parametrize("way", WAYS)
def test_traced_models_give_the_same_logits(model, way):
    with torch.no_grad():
        torch.testing.assert_close(way(model)(TOKENS), model(TOKENS))


@pytest.mark.parametrize("name", DIFFERENT)
@torch.no_grad()
def test_exported_models_give_the_same_logits(name):
    model = MODELS[name]()
    torch.testing.assert_close(exported(model)(TOKENS), model(TOKENS))


@torch.no_grad()
def compiled_and_traced() -> None:
    for name in DIFFERENT:
        model = MODELS[name]().eval()
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        traced = torch.jit.trace(model, (TOKENS,), check_trace=False)
        for way in (compiled, traced):
            torch.testing.assert_close(way(TOKENS), model(TOKENS))
    rnn = export_rnn(MODELS["constructed"]())
    compiled = torch.compile(rnn, fullgraph=True, backend="eager")
    for way in (compiled, torch.export.export(rnn, (TOKENS,)).module()):
        torch.testing.assert_close(way(TOKENS), rnn(TOKENS))


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_compiled_and_traced_models_give_the_same_logits():
    """In a process of its own where annotations are checked: that check cannot be compiled."""
    if os.environ.get("TL_DYCK_TEST_TYPES") != "1":
        return compiled_and_traced()
    run = "from tests.models import test_tracing; test_tracing.compiled_and_traced()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", run], check=True)
    return None


def test_gradients_by_string_are_those_of_each_string(model):
    """``vmap(grad(…))`` against one backward pass a string."""
    weights = {
        name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad
    }

    def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, weights, (row[None],))
        return logits.log_softmax(-1)[0, -1, 0]

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, TOKENS)
    for index, row in enumerate(TOKENS):
        single = copy.deepcopy(model)
        single(row[None]).log_softmax(-1)[0, -1, 0].backward()
        for name, weight in single.named_parameters():
            if weight.grad is not None:
                torch.testing.assert_close(found[name][index], weight.grad, rtol=1e-4, atol=1e-5)


def test_bad_tokens_are_refused_where_there_are_values(model):
    if not hasattr(model, "language"):
        pytest.skip("reads words, of any number")
    for wrong in (-1, 9):
        with pytest.raises(ValueError, match=f"token {wrong} is outside 0..4"):
            model(torch.tensor([[4, wrong]]))
    with pytest.raises(ValueError, match="exceed this model's n_ctx"):
        model(torch.zeros(1, model.cfg.n_ctx + 1, dtype=torch.int64))
