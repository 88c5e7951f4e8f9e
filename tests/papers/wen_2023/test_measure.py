"""What is measured on every model: its heads, beside built ones that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, construct, get_config
from tl_dyck.probes.drift import pair_drift
from tl_dyck.probes.length import accuracy_at_length
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, TrainResult
from tl_dyck_papers.wen_2023 import measure as measure_module
from tl_dyck_papers.wen_2023.measure import (
    PaperMeasurement,
    heads_of,
    probe_strings,
    share_at_depth,
)

LANGUAGE = DyckLanguage(2, 4)
TASK = load_task("dyck-2-4")


def test_a_decoy_looks_interpretable_and_does_nothing():
    model = construct.decoy_head(construct.uniform_attention(LANGUAGE, n_ctx=64), "stack")
    real, decoy = heads_of(model, TASK, n=60, seed=0)
    assert decoy["look_the top of the stack"] == pytest.approx(1)
    assert decoy["looks_like"] == "the top of the stack"
    assert decoy["interpretable"]
    assert decoy["replaceable"]
    assert decoy["accuracy_uniform"] == decoy["accuracy_random"] == decoy["accuracy"] == 1
    # the head that does the work is uniform already: only random patterns hurt
    assert real["accuracy_uniform"] == 1
    assert real["accuracy_random"] < 0.95
    assert not real["replaceable"]


def test_uniform_is_what_a_head_without_scores_does():
    """Replacing one head's pattern by uniform attention equals taking its queries away."""
    model = build_model(
        get_config("gpt", TASK, n_heads=2, dtype=torch.float64, initializer_range=0.5), seed=3
    )
    rows = heads_of(model, TASK, n=80, seed=1)
    tokens, last = TASK.sample_closing(80, generator=torch.Generator().manual_seed(1))

    def accuracy(other):
        logits = other(tokens)[torch.arange(80), last - 1]
        return (logits.argmax(-1) == tokens[torch.arange(80), last]).double().mean().item()

    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in rows:
        other = build_model(model.cfg, seed=3)
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            attn = other.blocks[row["layer"]].attn
            attn.W_Q[row["head"]] = 0
            attn.b_Q[row["head"]] = 0
        assert row["accuracy_uniform"] == pytest.approx(accuracy(other))
    assert rows[0]["accuracy"] == pytest.approx(accuracy(model))
    assert heads_of(model, TASK, n=80, seed=1) == rows


@pytest.mark.parametrize(("family", "options"), [("gpt", {"n_heads": 2}), ("minimal-onehot", {})])
def test_looks_and_weights_string_by_string(family, options):
    """Against plain loops over strings, closing brackets and a stack of positions."""
    config = get_config(family, TASK, dtype=torch.float64, initializer_range=0.8, **options)
    model = build_model(config, seed=1)
    rows = heads_of(model, TASK, n=25, seed=4)
    tokens, last = TASK.sample_closing(25, generator=torch.Generator().manual_seed(4))
    found = {(row["layer"], row["head"]): {} for row in rows}
    for string, end in zip(tokens, last, strict=True):
        _, cache = model.run_with_cache(string[None])
        text = string[: int(end) + 1].tolist()
        stack, depth = [], [0]
        for position, token in enumerate(text[1:], start=1):
            if token % 2 == 0:
                stack.append(position)
            else:
                stack.pop()
            depth.append(len(stack))
            if token % 2 == 0 or not stack:
                continue
            top = stack[-1]
            like = [j for j in range(1, position) if (text[j], depth[j]) == (text[top], depth[top])]
            places = {
                "the top of the stack": [top],
                "itself": [position],
                "the bracket before": [position - 1],
                "BOS": [0],
                "a bracket like the top": like,
            }
            for (layer, head), sums in found.items():
                row = cache["pattern", layer][0, head, position]
                largest = [j for j in range(position + 1) if row[j] >= row.max() * (1 - 1e-5)]
                for name, place in places.items():
                    share = len(set(place) & set(largest)) / len(largest)
                    if name == "a bracket like the top":
                        share = float(share > 0)
                    sums.setdefault(f"look_{name}", []).append(share)
                    sums.setdefault(f"mass_{name}", []).append(float(row[place].sum()))
    for row in rows:
        for name, values in found[row["layer"], row["head"]].items():
            assert row[name] == pytest.approx(np.mean(values), abs=1e-9), name


def test_looks_at_the_depth_of_the_top_string_by_string():
    config = get_config("minimal-onehot", TASK, dtype=torch.float64, initializer_range=0.8)
    model = build_model(config, seed=1)
    tokens, last = TASK.sample_closing(40, generator=torch.Generator().manual_seed(4))
    found = []
    for string, end in zip(tokens, last, strict=True):
        _, cache = model.run_with_cache(string[None])
        depth, depths = 0, [0]
        for position in range(1, int(end) + 1):
            depth += 1 if string[position] % 2 == 0 else -1
            depths.append(depth)
            if string[position] % 2 == 0 or depth == 0:
                continue
            row = cache["pattern", 0][0, 0, position]
            like = [j for j in range(1, position) if string[j] % 2 == 0 and depths[j] == depth]
            found.append(bool(max(row[like]) >= row.max() * (1 - 1e-5)))
    assert 0 < np.mean(found) < 1
    assert share_at_depth(model, TASK, n=40, seed=4) == pytest.approx(np.mean(found))
    parser = construct.stack(LANGUAGE, n_ctx=64)
    assert share_at_depth(parser, TASK, n=40, seed=4) == 1


def test_heads_that_can_be_spared_are_also_taken_together(monkeypatch):
    """With all heads idle by decree: as accurate as a model without any queries, or less."""
    monkeypatch.setattr(measure_module, "REPLACEABLE", 1.0)
    config = get_config("gpt", TASK, n_heads=2, dtype=torch.float64, initializer_range=0.5)
    model = build_model(config, seed=3)
    rows = heads_of(model, TASK, n=80, seed=1)
    (together,) = {row["accuracy_together"] for row in rows}
    tokens, last = TASK.sample_closing(80, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q[:] = 0
            block.attn.b_Q[:] = 0
    chosen = model(tokens)[torch.arange(80), last - 1].argmax(-1)
    uniform = (chosen == tokens[torch.arange(80), last]).double().mean().item()
    assert together == pytest.approx(uniform) or together < uniform
    # and by default only those that can be spared are: a decoy's absence costs nothing
    monkeypatch.undo()
    pair = construct.decoy_head(construct.stack(LANGUAGE, n_ctx=64), "uniform")
    real, decoy = heads_of(pair, TASK, n=60, seed=0)
    assert (real["replaceable"], decoy["replaceable"]) == (False, True)
    assert decoy["accuracy_together"] == 1


def test_a_nearly_uniform_head_does_not_look_interpretable():
    """Its largest weight is always on BOS, by a little: an argmax without a mass."""

    def leaning(tokens):
        rows = torch.ones(*tokens.shape, tokens.shape[-1], dtype=torch.float64).tril()
        rows[..., 0] += 0.2
        return rows / rows.sum(-1, keepdim=True)

    *_, head = heads_of(
        construct.decoy_head(construct.stack(LANGUAGE, n_ctx=64), leaning), TASK, n=40, seed=0
    )
    assert head["look_BOS"] == pytest.approx(1)
    assert head["mass_BOS"] < 0.5
    assert not head["interpretable"]


def test_probe_strings_are_of_the_language():
    for k, depth in ((2, 4), (3, 8), (1, 1)):
        language = DyckLanguage(k, depth)
        found = probe_strings(language, 1)
        assert found["paper"] == language.probe_string
        assert found == probe_strings(language, 1)
        for text in found.values():
            tokens = language.parse(text, prefix=False)
            assert language.is_complete(tokens)
        assert int(language.depth(language.parse(found["mixed"])).max()) == depth


@pytest.mark.parametrize(
    ("family", "forecast"), [("minimal-onehot", True), ("minimal-onehot", False), ("gpt", True)]
)
def test_what_is_read_from_the_weights_is_measured_with_the_rest(family, forecast, tmp_path):
    """Where it is defined, on strings of the model's own, and the forecasts only if asked for."""
    model = build_model(get_config(family, TASK, initializer_range=0.5), seed=3)
    counts = {"n_accuracy": 5, "n_long": 4, "n_strings": 5, "data_seed": 11}
    result = TrainResult(
        model=model, task=TASK, options=TrainConfig(steps=1), seed=3, status="target",
        steps=1, seconds=0.0, accuracy=None, history=[],
    )  # fmt: skip
    found = PaperMeasurement(**counts, forecast=forecast).measure(result, tmp_path)
    look, drift, moments = (
        found[name] for name in ("look_depth", "forecast_drift", "forecast_moments")
    )
    if family == "gpt":
        assert (look, drift, moments) == (None, None, None)
        return
    assert look == share_at_depth(model, TASK, n=4, seed=14)
    if forecast:
        assert drift == pytest.approx(pair_drift(model).accuracy(450))
        expected = accuracy_at_length(model, range(400, 501, 2)).after_close
        assert moments == pytest.approx(expected, abs=0.02)
    else:
        assert (drift, moments) == (None, None)
