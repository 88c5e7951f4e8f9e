"""Three accounts of balance violation that must agree: the probe (hooks), weights, strings."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.models import build_model, get_config
from tl_dyck.probes.balance import balance_violation
from tl_dyck.tasks import DyckTask

FAMILIES = [
    "minimal-onehot",
    "minimal-split",
    "minimal-yao",
    "minimal-uniform",
    "figure2-onehot",
    "figure2-yao",
]


def make_model(family, n_types, max_depth, seed, scale=0.5, biases=True):
    task = DyckTask(name="test", n_types=n_types, max_depth=max_depth)
    model = build_model(
        get_config(family, task, dtype=torch.float64, initializer_range=scale, ln_c=1e-300),
        seed=seed,
    )
    if biases:
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".b_" in name and parameter.requires_grad:
                    parameter.copy_(
                        torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                        * scale
                    )
    return model


def ratios_of(u, language):
    """S / P of Equations 15-17 in plain loops, of u(query, key); a state is (token, depth)."""
    k, depth, ratios = language.n_types, language.max_depth, []
    for d, j in itertools.product(range(1, depth), range(k)):
        q = (2 * j + 1, d)
        always = u(q, (language.bos_token, 0)) + u(q, (2 * j, d + 1)) + u(q, q)
        norm = {
            t: np.linalg.norm(always + sum(u(q, (2 * t[m - 1], m)) for m in range(1, d + 1)))
            for t in itertools.product(range(k), repeat=d)
        }
        best = min(norm, key=norm.get)
        P = min(value for t, value in norm.items() if t[-1] != best[-1])
        for pair_depth, i in itertools.product(range(1, depth + 1), range(k)):
            pair = u(q, (2 * i, pair_depth)) + u(q, (2 * i + 1, pair_depth - 1))
            ratios.append(np.linalg.norm(pair) / P)
    return np.array(ratios)


def beta_from_weights(model):
    """Equation 12 straight from weights and embedding table."""
    attn, e = model.blocks[0].attn, model.embed.table.numpy()
    weight = {
        name: getattr(attn, name)[0].detach().numpy()
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
    }
    b_O = attn.b_O.detach().numpy()

    def u(query, key):
        q = e[query] @ weight["W_Q"] + weight["b_Q"]
        score = q @ (e[key] @ weight["W_K"] + weight["b_K"]) / math.sqrt(model.cfg.d_head)
        value = (e[key] @ weight["W_V"] + weight["b_V"]) @ weight["W_O"] + b_O
        return math.exp(score) * (value - value.mean())

    return ratios_of(u, model.cfg.language)


@given(
    family=st.sampled_from(FAMILIES),
    n_types=st.integers(2, 3),
    max_depth=st.integers(2, 4),
    seed=st.integers(0, 50),
    scale=st.sampled_from([0.05, 0.5, 1.5]),
)
@settings(max_examples=25)
def test_hooks_agree_with_the_weights(family, n_types, max_depth, seed, scale):
    model = make_model(family, n_types, max_depth, seed, scale)
    found = balance_violation(model)
    expected = beta_from_weights(model)
    assert found.beta == pytest.approx(expected.mean(), rel=1e-9)
    # the same numbers in another order: d, then j, then d', then i
    assert found.ratio.transpose(0, 3, 1, 2).ravel() == pytest.approx(expected, rel=1e-9)


def balance_values(model):
    """Change W_V so that a close's value cancels its open's, up to scores that are all zero."""
    language, attn = model.cfg.language, model.blocks[0].attn
    pairs = torch.stack(
        [
            model.embed.table[2 * t, d] + model.embed.table[2 * t + 1, d - 1]
            for t in range(language.n_types)
            for d in range(1, language.max_depth + 1)
        ]
    )
    basis = torch.linalg.qr(pairs.T).Q
    with torch.no_grad():
        attn.W_V[0] -= basis @ (basis.T @ attn.W_V[0])


@pytest.mark.parametrize("insert_at", [0, 1, 2, 3])
def test_without_violation_matched_pairs_change_no_later_closing_bracket(insert_at):
    """The specification's pinning property, Eq. 6: S = 0 iff pairs may be inserted anywhere."""
    model = make_model("minimal-uniform", 2, 4, seed=1, biases=False)
    assert balance_violation(model).beta > 0.1
    balance_values(model)
    assert balance_violation(model).beta < 1e-12
    string, pairs = [0, 2, 2, 3], [2, 3, 0, 2, 3, 1]
    depths = [0, 1, 2, 3]
    pairs = pairs if depths[insert_at] + 2 <= 4 else pairs[:2]
    longer = string[:insert_at] + pairs * 3 + string[insert_at:]

    def attn_out(tokens):
        _, cache = model.run_with_cache(torch.tensor([[4, *tokens]]))
        return cache["attn_out", 0][0, -1].detach().numpy()

    assert attn_out(longer) == pytest.approx(attn_out(string), abs=1e-12)
    with torch.no_grad():  # perturbed on purpose
        model.blocks[0].attn.W_V += 0.3 * torch.randn(
            model.W_V[0].shape, generator=torch.Generator().manual_seed(0)
        )
    assert balance_violation(model).beta > 1e-2
    assert np.abs(attn_out(longer) - attn_out(string)).max() > 1e-3


def test_saturated_scores_stay_finite():
    model = make_model("minimal-onehot", 2, 4, seed=0, scale=6.0)
    _, cache = model.run_with_cache(model.cfg.language.probe_string)
    assert cache["attn_scores", 0][0, 0].tril().abs().max() > 100
    found = balance_violation(model)
    expected = beta_from_weights(model).reshape(3, 2, 4, 2).transpose(0, 2, 3, 1)
    assert np.isfinite(found.ratio).all()
    assert found.ratio == pytest.approx(expected, rel=1e-9)


# --- any model, by means over the occurrences of a state ------------------------------------------


def beta_from_means(model, tokens, head):
    """Queries, keys, values of every string, averaged by state in loops; then Eqs. 12, 15-17."""
    language, layer = model.cfg.language, model.cfg.n_layers - 1
    sums, counts, everything = {}, {}, []
    for row in tokens:
        string = row[: 1 + int((row != language.bos_token).sum())]
        with torch.no_grad():
            _, cache = model.run_with_cache(string[None])
        d = 0
        for position, token in enumerate(string.tolist()):
            if token < language.bos_token:
                d += 1 if token % 2 == 0 else -1
            vector = np.concatenate(
                [cache[name, layer][0, position, head].numpy() for name in "qkv"]
            )
            everything.append(((token, d), vector))
            sums[token, d] = sums.get((token, d), 0) + vector
            counts[token, d] = counts.get((token, d), 0) + 1
    mean = {state: sums[state] / counts[state] for state in sums}
    whole = np.mean([vector for _, vector in everything], axis=0)
    within = sum(((vector - mean[state]) ** 2).sum() for state, vector in everything)
    within /= sum(((vector - whole) ** 2).sum() for _, vector in everything)
    attn = model.blocks[-1].attn
    W_O, b_O = attn.W_O[head].detach().numpy(), attn.b_O.detach().numpy()

    def u(query, key):
        q, key_, v = (
            mean[query][: len(W_O)],
            mean[key][len(W_O) : 2 * len(W_O)],
            mean[key][2 * len(W_O) :],
        )
        value = v @ W_O + (b_O if model.cfg.n_heads == 1 else 0)
        return math.exp(q @ key_ / attn.attn_scale) * (value - value.mean())

    return np.mean(ratios_of(u, language)), within


@pytest.mark.parametrize(
    ("family", "overrides", "head"),
    [
        ("gpt", {}, None),
        ("gpt-linear", {"n_layers": 3}, 0),
        ("gpt-learned", {"n_heads": 2}, 1),
        ("eq6", {}, None),
        ("minimal-yao", {"n_heads": 2}, 1),
    ],
)
def test_means_of_any_first_layer(family, overrides, head):
    task = DyckTask(name="test", n_types=2, max_depth=3, train_lengths=(2, 8, 10))
    config = get_config(family, task, dtype=torch.float64, initializer_range=0.25, **overrides)
    model = build_model(config, seed=1)
    with torch.no_grad():
        model.blocks[-1].attn.b_O += torch.randn(
            config.d_model, generator=torch.Generator().manual_seed(2)
        )
    tokens = task.sample(40, generator=torch.Generator().manual_seed(0))
    found = balance_violation(model, tokens, first_layer="means", head=head)
    beta, within = beta_from_means(model, tokens, head or 0)
    assert found.beta == pytest.approx(beta, rel=1e-9)
    assert found.within == pytest.approx(within, rel=1e-9, abs=1e-12)
    assert "approximate" in repr(found)
    assert (found.within < 1e-12) == family.startswith("minimal")
    drawn = balance_violation(model, task, first_layer="means", head=head, n=40, seed=0)
    assert drawn.beta == found.beta


def test_means_are_exact_where_there_is_nothing_to_average():
    model = make_model("minimal-split", 2, 3, seed=3)
    task = DyckTask(name="test", n_types=2, max_depth=3)
    exact = balance_violation(model)
    found = balance_violation(model, task, first_layer="means", n=50)
    assert found.ratio == pytest.approx(exact.ratio, rel=1e-9)
    assert exact.within is None
    assert found.within == pytest.approx(0, abs=1e-20)
