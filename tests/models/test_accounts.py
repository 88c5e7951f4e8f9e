"""Every account of a model's logits, on every case, in both precisions, against one reference.

An account is code that computes what a model says: the model itself, the quick passes, the RNN, the
certifiers' arithmetic. A new account is a function here; a new model is a case in `tests.cases`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import CASES, DEEP_CASES, EXTREME, UNWRITTEN, case, thinned
from tests.reference import reference_logits
from tl_dyck import as_bridge
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.language.counted import Counted, NetworkSymbols
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.certify.objectives import Objectives
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models import DyckTransformer, lean_logits, list_models
from tl_dyck.models.hooked import installed
from tl_dyck.models.lean import LeanTail
from tl_dyck.reading.activations import ACTIVATIONS
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.training.packing import IGNORED
from tl_dyck.training.stack import Batch, Stack

SHAPES = ((3, 1), (2, 13))
#: How far an account may be from the reference, relative to 1 + the largest logit.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}


class NotThisOne(Exception):
    """The account has no such models; the message is the reason."""


def only(holds: bool, reason: str) -> None:
    if not holds:
        raise NotThisOne(reason)


# Each returns logits [batch, pos, out], or [batch, out] of the last position.


def the_model(model: Any, tokens: Tensor) -> Tensor:
    return model(tokens)


def lean(model: Any, tokens: Tensor) -> Tensor:
    only(isinstance(model, DyckTransformer), "lean_logits takes models of ours")
    return lean_logits(model, tokens)


def lean_tail(model: Any, tokens: Tensor) -> Tensor:
    only(LeanTail.fits(model), "LeanTail takes models of the usual shape")
    _, cache = model.run_with_cache(tokens)
    return LeanTail(model).run(0, cache["blocks.0.hook_resid_pre"], cache["blocks.0.hook_attn_out"])


def in_lockstep(model: Any, tokens: Tensor) -> Tensor:
    only(isinstance(model, DyckTransformer), "what trains seeds in step takes models of ours")
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in trained.items()}
    stack = Stack([model], [moments], step=0, weight_decay=0.0)
    depth = torch.zeros_like(tokens)
    if model.cfg.embedding != "token":
        depth = DyckLanguage(model.cfg.n_types, model.cfg.max_depth).clipped_depth(tokens)
    batch = Batch(
        members=slice(0, 1),
        tokens=tokens[None],
        depth=depth[None],
        first=torch.zeros_like(tokens)[None],
        targets=torch.full_like(tokens, IGNORED)[None],
    )
    return stack.logits(batch)[0].T.reshape(*tokens.shape, -1)


def bridge(model: Any, tokens: Tensor) -> Tensor:
    only(installed.MAJOR >= 4, "TransformerLens 3 has no such TransformerBridge")
    only(model.W_U.dtype == torch.float64, "it is made alike for either, and slowly")
    only(not getattr(model.cfg, "post_embedding_ln", False), "a bridge has no norm there")
    return bridged(model)(tokens)


bridged = lru_cache(2)(as_bridge)


@lru_cache(2)
def exported(model: Any) -> TwoLayerRNN:
    only(model.cfg.n_layers == 1, "a two-layer RNN is a model of one layer")
    return export_rnn(model)


def rnn(model: Any, tokens: Tensor) -> Tensor:
    return exported(model)(tokens)


def rnn_step_by_step(model: Any, tokens: Tensor) -> Tensor:
    machine = exported(model)
    only(not machine.config.has_position, "with positions queries are known at the end")
    carry, said = machine.initial(len(tokens)), []
    for column in tokens.T:
        carry, logits = machine.step(carry, column)
        said.append(logits)
    return torch.stack(said, 1)


def rnn_last(model: Any, tokens: Tensor) -> Tensor:
    return exported(model).last_logits(tokens)


def onnx(model: Any, tokens: Tensor) -> Tensor:
    runtime = pytest.importorskip("onnxruntime")
    from tl_dyck_hooks.certifiers.onnx import to_onnx

    only(model.W_U.dtype == torch.float32, "onnxruntime has no Erf in float64")
    machine = exported(model)
    session = runtime.InferenceSession(to_onnx(machine, tokens.shape[1]).SerializeToString())
    embedded = machine.embed(tokens, machine.states(tokens))
    rows = [session.run(None, {"embeddings": row[None].detach().numpy()})[0] for row in embedded]
    return torch.from_numpy(np.concatenate(rows))


# Balls: what is returned is the middle, and the reference must lie in the ball.


def balls(model: Any, tokens: Tensor) -> Any:
    only(model.W_U.dtype == torch.float64, "computes in float64 whatever the weights are")
    machine = exported(model)
    strings = [tuple(row[machine.config.bos_token is not None :]) for row in tokens.tolist()]
    return Network(machine).values_of(strings, Objectives.margins(0, machine.config.d_vocab_out))


def counted(model: Any, tokens: Tensor) -> Any:
    only(model.W_U.dtype == torch.float64, "computes in float64 whatever the weights are")
    machine = exported(model)
    only(not machine.config.has_position, "counts need a model without positions")
    only(isinstance(model, DyckTransformer), "counts need a language")
    language = DyckLanguage(model.cfg.n_types, model.cfg.max_depth)
    profiles, symbols = Profiles(DyckDistribution(language)), NetworkSymbols(machine, language)
    wanted, said = Objectives.margins(0, machine.config.d_vocab_out), []
    endings, rows = profiles.of_strings(tokens[:, 1:].numpy())
    for ending, row in zip(endings, rows, strict=True):
        mid, rad, _ = Counted(symbols, ending, wanted).values(np.array([[1.0, *row]]))
        said.append((mid[0], rad[0]))
    return tuple(np.array(part) for part in zip(*said, strict=True))


#: Cases of ours that are no family as it is.
CHANGED = {entry.name for entry in CASES} - {*list_models()}

LOGITS = (the_model, lean, lean_tail, in_lockstep, bridge, rnn, rnn_step_by_step, rnn_last, onnx)
BALLS = (balls, counted)


@lru_cache(2)
def built(name: str, dtype: torch.dtype) -> Any:
    return case(name).build(dtype, n_ctx=32)


@lru_cache(len(SHAPES))
def expected(name: str, shape: tuple[int, int], dtype: torch.dtype) -> tuple[Any, Tensor, Any]:
    """Model, strings and the reference's logits for the weights as they are in that precision."""
    model, (batch, length) = built(name, dtype), shape
    if isinstance(model, DyckTransformer):  # prefixes of the language, with what follows BOS
        law = DyckDistribution(DyckLanguage(model.cfg.n_types, model.cfg.max_depth))
        tokens = law.sample(batch, length - 1, mode="prefix", generator=seeded())
        tokens = torch.nn.functional.pad(tokens, (1, 0), value=model.cfg.d_vocab - 1)
    else:
        tokens = torch.randint(model.cfg.d_vocab, shape, generator=seeded())
    weights = {key: p.detach().double().numpy() for key, p in model.named_parameters()}
    rows = [reference_logits(model.cfg, weights, row) for row in tokens.tolist()]
    return model, tokens, np.stack(rows)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def off(account: Callable[[Any, Tensor], Tensor], entry: Any, dtype: torch.dtype) -> float:
    """How far an account is from the reference, in tolerances."""
    worst = 0.0
    for shape in SHAPES:
        model, tokens, wanted = expected(entry.name, shape, dtype)
        with torch.no_grad():
            logits = account(model, tokens)
        assert logits.dtype == dtype, account.__name__
        wanted = wanted if logits.ndim == 3 else wanted[:, -1]
        error = abs(logits.double().numpy() - wanted).max() / (1 + abs(wanted).max())
        # a score of 1e4 is known to 1e-3 in float32, whatever computes it
        extreme = entry.largest_score == EXTREME and dtype == torch.float32
        worst = max(worst, error / (5e-3 if extreme else TOLERANCE[dtype]))
    return worst


def outside(account: Callable[[Any, Tensor], Any], entry: Any, dtype: torch.dtype) -> float:
    """How far the reference's margins are from balls, in tolerances; inf if the balls are wide."""
    worst = 0.0
    for shape in SHAPES[1:]:
        model, tokens, wanted = expected(entry.name, shape, dtype)
        mid, rad = account(model, tokens)
        margins, largest = wanted[:, -1, :1] - wanted[:, -1, 1:], 1 + abs(wanted).max()
        beyond = (abs(mid - margins) - rad).max() / largest  # 1e-12: of the reference itself
        wide = (rad > 1e-6 * largest).any() and entry.largest_score != EXTREME
        worst = max(worst, np.inf if wide else beyond / 1e-12)
    return worst


@pytest.mark.parametrize(
    ("entry", "dtype"),
    thinned(  # each in one of both, by turns
        (entry, dtype)
        for i, entry in enumerate([*CASES, *DEEP_CASES])
        for dtype in list(TOLERANCE)[:: -1 if i % 2 else 1]
    ),
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_every_account_says_what_the_reference_says(entry: Any, dtype: torch.dtype) -> None:
    found = {}
    for measure, accounts in ((off, LOGITS), (outside, BALLS)):
        for account in accounts:
            if account is bridge and entry.is_ours and entry.name not in CHANGED:
                continue  # of every family of ours in test_bridge
            try:
                found[account.__name__] = measure(account, entry, dtype)
            except NotThisOne:
                continue
    assert {name: error for name, error in found.items() if not error <= 1} == {}
    one_layer = expected(entry.name, SHAPES[0], dtype)[0].cfg.n_layers == 1
    needed = {"the_model", *(["rnn", "rnn_last"] if one_layer else [])}
    needed |= {"lean", "in_lockstep"} if entry.is_ours else {"lean_tail"}
    needed |= {"rnn_step_by_step"} if entry.name in ("gpt", "minimal-yao", "relu") else set()
    needed |= {"balls"} if one_layer and dtype == torch.float64 else set()
    assert needed <= set(found)


@pytest.mark.parametrize(
    ("family", "act_fn"),
    [
        *(("gpt-learned", act_fn) for act_fn in (*ACTIVATIONS, UNWRITTEN, "solu_ln")),
        *((family, "gelu") for family in ("eq6", "eq49", "minimal-yao", "figure2-split")),
    ],
)
def test_lean_logits_and_their_gradients_are_the_models(
    random_model: Any, family: str, act_fn: str
) -> None:
    model = random_model(family, act_fn=act_fn, n_heads=2)
    tokens = torch.randint(5, (2, 9), generator=seeded())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    slow, fast = model(tokens), lean_logits(model, tokens)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    weights = torch.randn(slow.shape, generator=seeded(), dtype=slow.dtype)
    slopes, expected = (
        torch.autograd.grad((logits * weights).sum(), trained, allow_unused=True)
        for logits in (fast, slow)
    )
    for found, wanted in zip(slopes, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-7)


# --- long strings: the RNN and the model it came from ---------------------------------------------

LONG = ["gpt-linear", "gpt-uniform", "eq6", "minimal-onehot", "minimal-onehot-linear-2heads",
        "figure2-yao", "linear-readout", "gelu-new-lnpre-3heads", "attn-only-lnpre-classifier",
        "scores-100", "scores-1e4", "scores-1e4-attn-only"]  # fmt: skip


# Causality: position i of one string of 1,100 tokens is the last position of its prefix of length
# i, so these check every length from 1 to 1,100, over two borders of blocks; 511 and 513 end just
# beside one.
@pytest.mark.parametrize(
    ("name", "length", "dtype"),
    [
        *((name, 1100, torch.float64) for name in LONG),
        *((name, 1100, torch.float32) for name in LONG[:3] + LONG[-2:]),
        *(("relu-ln-4heads", length, dtype) for length in (511, 513) for dtype in TOLERANCE),
    ],
)
def test_the_rnn_is_the_model_on_long_strings(name: str, length: int, dtype: torch.dtype) -> None:
    entry = case(name)
    model = entry.build(dtype, length)
    machine, tokens = export_rnn(model), entry.tokens(1, length, model.cfg.d_vocab)
    with torch.no_grad():
        expected, found = model(tokens).double(), machine(tokens).double()
        tolerance = 1e-5 if dtype == torch.float32 else 1e-10
        if dtype == torch.float32 and entry.largest_score == EXTREME:
            # either may be off by what float32 knows of a score; so hold the RNN to the truth
            exact = machine.to(torch.float64)(tokens)
            tolerance += 4 * relative_error(expected, exact)
            expected = exact
    assert relative_error(found, expected) <= tolerance


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / (1 + expected.abs().max()))


def test_no_case_is_trivial_and_those_are_saturated_that_say_so() -> None:
    assert len({entry.name for entry in CASES}) == len(CASES)
    for entry in CASES:
        machine = export_rnn(entry.build())
        d_vocab = machine.config.d_vocab
        tokens = torch.randint(d_vocab, (8, 32), generator=torch.Generator().manual_seed(1))
        r = machine.embed(tokens, machine.states(tokens))
        scores = torch.einsum("bqhe,bkhe->bhqk", machine.query(r), machine.key(r)).tril()
        if entry.largest_score is not None:
            assert float(scores.abs().max()) == pytest.approx(entry.largest_score)
        # what comes before the last token matters, so a wrong attention cannot go unnoticed
        tokens = entry.tokens(32, 12, d_vocab)
        changed = (tokens + 1) % d_vocab
        changed[:, -1] = tokens[:, -1]
        change = relative_error(machine.last_logits(changed), machine.last_logits(tokens))
        assert change > 1e-6 or d_vocab == 1, entry.name
