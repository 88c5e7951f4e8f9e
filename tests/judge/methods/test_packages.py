"""The adapters of packages: that what they hand a package, and read from it, is what they say."""

from __future__ import annotations

import copy
import functools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients

from tests.judge.methods import brackets
from tests.judge.methods.cases import judged
from tests.judge.methods.heads import (
    both_ends,
    differences,
    each_head,
    first_order,
    only,
    other_rows,
    restored,
    rights,
    run,
)
from tl_dyck.judge import (
    CONVERGED,
    Case,
    Method,
    Question,
    WithError,
    judge,
    make_case,
    methods,
)
from tl_dyck.judge.asked import exchange_types
from tl_dyck_hooks.methods.packages.captum import from_captum

#: Packages warn of what is theirs, and draw from torch's own generator.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.global_rng]

CASES = ("deep", "backup", "trained")


def values(name: str | Method, case: Case) -> np.ndarray:
    """What a method says of every head, ``[layer, head]``, before its threshold."""
    if name in methods.unavailable():
        pytest.skip("it is not installed")
    method = methods.resolve(name)
    _, questions = judged(
        next(at for at in (*CASES, "exact", "disturbed") if judged(at)[0] is case)
    )
    asked = questions["needed"]
    scores = method(case, asked)
    scores = scores.values if isinstance(scores, WithError) else scores
    above = float(method.declared.yes.split()[1])  # type: ignore[attr-defined]
    found = np.full((case.model.cfg.n_layers, case.model.cfg.n_heads), np.nan)
    for question, score in zip(asked, scores or [], strict=True):
        assert score is not None
        found[question.target] = score + above
    return found


def held(found: np.ndarray, wanted: np.ndarray, atol: float = 1e-6) -> None:
    """Equal wherever a head was asked about."""
    asked = ~np.isnan(found)
    assert asked.any()
    np.testing.assert_allclose(found[asked], wanted[asked], rtol=1e-5, atol=atol)


def few(case: Case, logits: np.ndarray) -> float:
    """Sum of the differences of the first 16 strings, as captum is shown."""
    return float(differences(case.task.n_types, logits[:16], rights(case)[:16]).sum())


@pytest.mark.parametrize("at", CASES)
@pytest.mark.parametrize("baseline", ["zero", "mean", "exchanged"])
def test_captum_ablates_what_a_head_puts_out(at: str, baseline: str) -> None:
    case, _ = judged(at)
    z, other = run(case).z, run(case, other_rows(case)).z

    def drop(layer: int, head: int) -> float:
        mine = z[layer][head]
        put = {
            "zero": np.zeros_like(mine),
            "mean": np.broadcast_to(mine[:16].mean((0, 1)), mine.shape),
            "exchanged": other[layer][head],
        }[baseline]
        after = run(case, z=only(layer, head, lambda value: put)).logits
        asked = (rights(case)[:16] >= 0).sum()
        return abs(few(case, run(case).logits) - few(case, after)) / asked

    held(values(f"captum-feature-ablation-{baseline}", case), each_head(case, drop))


def test_captum_integrates_from_the_exchanged_string() -> None:
    """Midpoints of the way between activations, four times as many as it begins with."""
    case, _ = judged("trained")
    tokens = case.tokens[:16]
    right = case.task.language.right_bracket(tokens)
    other = exchange_types(case.task.language, tokens)
    name = "blocks.0.attn.hook_z"
    ends = [case.model.run_with_cache(each)[1][name] for each in (other, tokens)]
    slope = torch.zeros_like(ends[0])
    steps = 200
    for step in range(steps):
        at = torch.lerp(*ends, (step + 0.5) / steps).detach().requires_grad_()
        logits = case.model.run_with_hooks(tokens, fwd_hooks=[(name, lambda z, hook, at=at: at)])
        mine = logits.gather(-1, right.clamp(min=0)[..., None])[..., 0]
        closing = logits[..., 1 : case.task.language.n_brackets : 2]
        gap = mine - (closing.sum(-1) - mine) / (closing.shape[-1] - 1)
        slope += torch.autograd.grad(gap[right >= 0].sum(), at)[0] / steps
    wanted = ((ends[1] - ends[0]) * slope).sum((0, 1, 3)).abs() / (right >= 0).sum()
    # it begins with so many, and makes four times as many at least
    method = from_captum(IntegratedGradients, "exchanged", n_steps=steps // 4)
    found = values(method, case)
    held(found[:1], wanted.detach().numpy()[None], atol=1e-5)


@pytest.mark.parametrize("at", CASES)
def test_transformer_lens_patches_outputs_and_patterns(at: str) -> None:
    case, _ = judged(at)
    held(values("transformer-lens-head-output", case), restored(case))
    low, high = both_ends(case)
    pattern, rows = run(case).pattern, other_rows(case)

    def share(layer: int, head: int) -> float:
        put = only(layer, head, lambda value: pattern[layer][head])
        logits = run(case, rows, pattern=put).logits
        found = differences(case.task.n_types, logits, rights(case)).mean()
        return (float(found) - low) / (high - low)

    held(values("transformer-lens-head-pattern", case), each_head(case, share))


def test_edges_of_a_head_add_up_to_its_attribution_where_no_norm_is_behind_it() -> None:
    """Sum over edges of Δresult · ∂/∂(what is read) = Δz · ∂/∂z, if readers read the sum."""
    case, _ = judged("trained")
    low, high = both_ends(case)
    asked = rights(case) >= 0
    slopes = first_order(case) * abs(high - low) * asked.size / asked.sum()
    held(values("auto-circuit-edge-attribution-patching", case), slopes, atol=1e-4)


@pytest.mark.parametrize("name", ["pyvene-distributed-alignment-search", "auto-circuit-acdc"])
def test_heads_that_carry_are_above_those_that_do_not(name: str) -> None:
    """One block of TransformerLens' own, in which no norm is between a head and its readers."""
    if name in methods.unavailable():
        pytest.skip("it is not installed")
    scores = judge(name, [("trained", seed) for seed in range(4)])
    assert scores.loc["carries, trained", "auroc"] > 0.6


@pytest.mark.parametrize("kind", ["TopK", "BatchTopK", "Standard"])
def test_a_feature_that_tells_the_type_is_found_and_noise_is_none(kind: str) -> None:
    sae_lens = pytest.importorskip("sae_lens")
    from tl_dyck_hooks.methods.packages.sae_lens import _best

    made = getattr(sae_lens, f"{kind}TrainingSAE"), getattr(sae_lens, f"{kind}TrainingSAEConfig")
    options = {"l1_coefficient": 0.1} if kind == "Standard" else {"k": 1}
    generator = torch.Generator().manual_seed(0)
    types = torch.randint(2, (1000,), generator=generator)
    noise = torch.randn(1000, 4, generator=generator)
    told = torch.nn.functional.one_hot(types, 4) * 5 + 0.1 * noise
    for shown, low, high in ((told, 0.95, 1.0), (noise, 0.0, 0.3)):
        found = []
        for seed in range(3):  # one in ten finds nothing, by how its weights begin
            torch.manual_seed(seed)
            found.append(_best(shown, types, *made, options))
        assert low <= sorted(found)[1] <= high


def test_what_is_not_installed_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    entry: Any = methods._entries.pop("captum-shapley-values", None)
    monkeypatch.setitem(sys.modules, "tl_dyck_hooks.methods.packages.captum", None)
    try:
        assert "captum-shapley-values" in methods.unavailable()
    finally:
        if entry is not None:
            methods._entries["captum-shapley-values"] = entry
    assert "chance" not in methods.unavailable()
    assert judge("chance", [("uniform", 0)]) is not None


@pytest.mark.parametrize("at", ["pre-norm", "post-norm"])
def test_edges_of_auto_circuit_are_those_of_ours(at: str) -> None:
    """Both are gradients of one mean times changes, which add up what heads write, norm or not."""
    name = "auto-circuit-edge-attribution-patching"
    if name in methods.unavailable():
        pytest.skip("it is not installed")
    case, questions = judged(at)
    found: list[Any] = [
        methods.get(each)(case, questions["edge"]) for each in (name, "edge-attribution")
    ]
    mine, ours = (np.array(scores, dtype=float) for scores in found)
    assert len(mine) > 2
    np.testing.assert_allclose(mine, ours, rtol=1e-4, atol=1e-4)


def test_auto_circuit_sees_heads_of_a_built_model() -> None:
    """Which copies the bracket that it has just read, so that heads do nothing after the first."""
    assert np.nanmax(values("auto-circuit-edge-attribution-patching", judged("backup")[0])) > 1


def backwards_as_gim(model: Any) -> list[tuple[str, Any]]:
    """What is as it is, but its gradient: Edin et al. 2025, with the factors of gim-explain."""
    scores: dict[str, torch.Tensor] = {}

    def scaled(by: float) -> Any:
        return lambda value, hook: value.detach() + (value - value.detach()) * by

    def kept(value: torch.Tensor, hook: Any) -> torch.Tensor:
        return scores.setdefault(hook.name.replace("attn_scores", "pattern"), value)

    def softer(pattern: torch.Tensor, hook: Any) -> torch.Tensor:
        half = 2 * (scores.pop(hook.name) / 2).softmax(-1)
        return pattern.detach() + half - half.detach()

    ends = {"hook_q": scaled(0.25), "hook_k": scaled(0.25), "hook_v": scaled(0.5)}
    ends |= {"hook_attn_scores": kept, "hook_pattern": softer}
    ends |= {"hook_scale": lambda value, hook: value.detach()}
    return [
        (name, put) for name in model.hook_dict for end, put in ends.items() if name.endswith(end)
    ]


@pytest.mark.parametrize("at", ["trained", "disturbed"])
def test_gim_changes_gradients_as_it_says(at: str) -> None:
    adapter = pytest.importorskip("tl_dyck_hooks.methods.packages.gim")
    case, questions = judged(at)
    model = case.model
    back = backwards_as_gim(model)
    found = np.zeros((model.cfg.n_layers, model.cfg.n_heads))
    low, high = both_ends(case)
    for layer in range(model.cfg.n_layers):
        name = f"blocks.{layer}.attn.hook_z"
        mine, other = (model.run_with_cache(each)[1][name] for each in (case.tokens, case.partners))
        leaf = mine.detach().requires_grad_()
        hooks = [*back, (name, lambda z, hook, leaf=leaf: leaf)]
        logits = model.run_with_hooks(case.tokens, fwd_hooks=hooks)
        (slope,) = torch.autograd.grad(case.difference(logits, case.right).mean(), leaf)
        found[layer] = (slope * (other - mine)).sum((0, 1, 3)).abs().detach() / abs(high - low)
    held(values(adapter.attribution_patching, case), found)
    assert "softmax" not in vars(torch.Tensor)

    def share(case: Case, row: tuple[int, ...], answer: int) -> np.ndarray:
        tokens = torch.tensor([row])
        leaf = model.embed(tokens).detach().requires_grad_()
        bos = model.embed(torch.full_like(tokens, case.task.language.bos_token))
        hooks = [*back, ("hook_embed", lambda embed, hook: leaf)]
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        (slope,) = torch.autograd.grad(logits[0, -1, answer], leaf)
        return (slope * (leaf - bos)).sum(-1)[0].abs().detach().numpy()

    asked = questions["token"]
    wanted = brackets.ahead(brackets.singly(share))(case, asked)
    assert adapter.explain(case, asked) == pytest.approx(wanted, rel=1e-6)
    assert "softmax" not in vars(torch.Tensor)


def test_integrated_gradients_are_a_mean_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 21, where that much of every edge is exchanged, the ends half; as a trapezium."""
    adapter = pytest.importorskip("tl_dyck_hooks.methods.packages.auto_circuit")
    name = "auto-circuit-edge-attribution-patching-ig"
    case, questions = judged("post-norm")
    found: dict[Any, float] = {}
    for step in range(21):
        score = functools.partial(adapter._slopes, mask_val=step / 20)
        for edge, value in adapter._edges(copy.deepcopy(case), score)[0].items():
            found[edge] = found.get(edge, 0.0) + value / (40 if step in (0, 20) else 20)
    monkeypatch.setattr(adapter, "_MOST", 1)
    scores: Any = methods.get(name)(case, questions["edge"])
    wanted = [abs(found[question.target]) - 0.1 for question in questions["edge"]]
    np.testing.assert_allclose(np.array(scores.values, dtype=float), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("baseline", ["mean", "exchanged"])
def test_captum_takes_as_many_steps_as_a_step_reader_needs(baseline: str) -> None:
    """Or says nothing: 20 Gauss-Legendre points were off by all there is, and an answer."""
    linear, _ = make_case("balanced", 0, reader="linear", n_layers=1, n_heads=3)
    step, _ = make_case("balanced", 0, reader="step", n_layers=1, n_heads=3)
    asked = [Question("needed", (0, head)) for head in range(3)]
    method = methods.get(f"captum-integrated-gradients-{baseline}")
    smooth, rough = (method(case, asked) for case in (linear, step))
    assert isinstance(smooth, WithError)
    assert isinstance(rough, WithError)
    assert max(smooth.error) <= CONVERGED
    tokens = step.tokens[:16]
    right = step.task.language.right_bracket(tokens)
    name = "blocks.0.attn.hook_z"
    z, other = (
        step.model.run_with_cache(each)[1][name]
        for each in (tokens, exchange_types(step.task.language, tokens))
    )
    ends = [z, other if baseline == "exchanged" else z.mean((0, 1), keepdim=True).expand_as(z)]
    change = []
    for put in ends:
        logits = step.model.run_with_hooks(tokens, fwd_hooks=[(name, lambda z, hook, put=put: put)])
        mine = logits.gather(-1, right.clamp(min=0)[..., None])[..., 0]
        closing = logits[..., 1 : step.task.language.n_brackets : 2]
        gap = mine - (closing.sum(-1) - mine) / (closing.shape[-1] - 1)
        change.append(torch.where(right >= 0, gap, 0.0).sum())
    whole = float(change[0] - change[1]) / int((right >= 0).sum())
    if max(rough.error) <= CONVERGED:  # heads of one sign add up
        assert sum(score + 0.1 for score in rough.values) >= 0.98 * abs(whole)
    assert max(rough.error) > 0


def test_samples_of_a_gradient_that_is_zero_are_no_answer() -> None:
    """GradientShap behind a step reader: no sample differs from another, all miss the step."""
    case, _ = make_case("balanced", 0, reader="step", n_layers=1, n_heads=3)
    asked = case.task.language.right_bracket(case.tokens)[:, -1] >= 0
    rows = [Question("token", (tuple(row), 1)) for row in case.tokens[asked].tolist()]
    found = methods.get("captum-gradient-shap")(case, rows)
    assert isinstance(found, WithError)
    assert min(found.error) > CONVERGED


@pytest.mark.parametrize("name", ["l1", "top-k", "batch-top-k", "rotated"])
def test_a_direction_is_one_that_a_dictionary_has(name: str) -> None:
    """What an autoencoder is shown lies in what a head puts out, and so does what it finds."""
    full = f"sae-lens-{name}-features"
    if full in methods.unavailable():
        pytest.skip("it is not installed")
    case, questions = judged("features")
    scores: Any = methods.get(full)(case, questions["feature"])
    found = np.array(scores.values, dtype=float) + 0.9
    assert ((found >= 0) & (found <= 1 + 1e-6)).all()
    assert len(set(found.round(6))) > 2


def test_the_page_of_packages_runs(capsys: pytest.CaptureFixture[str]) -> None:
    if methods.unavailable():
        pytest.skip("a package is not installed")
    page = Path(__file__).resolve().parents[3] / "docs" / "packages.md"
    run_here = r"<!-- run by tests/judge/methods/test_packages.py -->\n\n```python\n(.*?)```"
    blocks = re.findall(run_here, page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    exec(compile("\n".join(blocks), "packages.md", "exec"), {})
    assert "A0.0->MLP 0" in capsys.readouterr().out
