"""Packed rows and stacked models, against the models' own forward pass, string by string."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import UNWRITTEN
from tl_dyck.models import build_model, get_config, list_models
from tl_dyck.reading.activations import ACTIVATIONS
from tl_dyck.tasks import load_task
from tl_dyck.training.packing import pack, place
from tl_dyck.training.stack import Stack

TASK = load_task("dyck-2-4")
BOS = TASK.language.bos_token


@given(
    st.integers(1, 30).flatmap(
        lambda width: st.tuples(
            st.just(width),
            st.integers(1, 12).flatmap(
                lambda n: st.lists(
                    st.lists(st.integers(1, width), min_size=n, max_size=n), min_size=1, max_size=3
                )
            ),
        )
    )
)
def test_strings_are_placed_without_overlap_in_few_rows(drawn):
    width, lengths = drawn
    starts, rows = place(np.array(lengths), width)
    for own, begin, used in zip(lengths, starts.tolist(), rows.tolist(), strict=True):
        slots = [
            slot
            for start, length in zip(begin, own, strict=True)
            for slot in range(start, start + length)
        ]
        assert len(set(slots)) == len(slots)
        assert all(
            start // width == (start + n - 1) // width for start, n in zip(begin, own, strict=True)
        )
        assert {slot // width for slot in slots} == set(range(used))
        # of first fit, no two rows are both at most half full
        filled = [sum(slot // width == row for slot in slots) for row in range(used)]
        assert sum(2 * n <= width for n in filled) <= 1


def test_the_longest_are_placed_first():
    starts, rows = place(np.array([[4, 6, 4, 6]]), 10)  # the shortest first would take a third row
    assert rows.tolist() == [2]
    assert starts.tolist() == [[6, 0, 16, 10]]


def packed(tokens, extra=0, width=26):
    """Batches ``[model, string, pos]`` as `SeedGroup` packs them, and the slots of each token.

    `extra` slots are to spare in a row.
    """
    language = TASK.language
    lengths = (tokens != BOS).sum(-1)
    depth = language.clipped_depth(tokens)
    batch, _, slots = pack(
        tokens[..., :-1],
        lengths,
        depth=depth[..., :-1],
        targets=tokens[..., 1:],
        width=width + extra,
        filling=BOS,
    )
    return batch, slots


def random_models(family, n_models, seed, **overrides):
    config = get_config(
        family, TASK, dtype=torch.float64, initializer_range=0.4, n_ctx=40, **overrides
    )
    models = [build_model(config, seed + index) for index in range(n_models)]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # biases and LayerNorm scales that do something
        for name, parameter in itertools.chain.from_iterable(
            model.named_parameters() for model in models
        ):
            if parameter.requires_grad and ".W_" not in name:
                parameter += 0.3 * torch.randn(
                    parameter.shape, generator=generator, dtype=torch.float64
                )
    return models


def stacked(models, **options):
    moments = [
        {
            name: (torch.zeros_like(p.data), torch.zeros_like(p.data))
            for name, p in trained(model).items()
        }
        for model in models
    ]
    return Stack(models, moments, step=0, **{"weight_decay": 0.0, **options})


def trained(model):
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def loss_of(model, strings):
    """Mean over all brackets, each string read alone and without filling."""
    nats, count = 0.0, 0
    for row in strings:
        string = row[: int((row != BOS).sum()) + 1]
        nats = nats + F.cross_entropy(model(string[None, :-1])[0], string[1:], reduction="sum")
        count += len(string) - 1
    return nats / count


@pytest.mark.parametrize(
    ("family", "n_models", "overrides"),
    [
        *((family, 2, {}) for family in list_models()),
        *((family, 3, {"n_heads": 3, "n_layers": 3}) for family in ("gpt-learned", "eq49")),
        ("minimal-split", 1, {"n_heads": 2, "n_layers": 2}),
        *(
            ("gpt", 2, {"act_fn": act_fn})
            for act_fn in (*ACTIVATIONS, UNWRITTEN, "solu_ln", "xielu")
        ),
        ("eq6", 2, {"act_fn": "silu"}),
    ],
)
def test_losses_and_gradients_are_the_models(family, n_models, overrides):
    seed, batch, extra = 7 * n_models, 3, n_models - 1
    models = random_models(family, n_models, seed, **overrides)
    tokens = torch.stack(
        [
            TASK.sample(batch, generator=torch.Generator().manual_seed(seed + index))
            for index in range(n_models)
        ]
    )
    expected = []
    for model, strings in zip(models, tokens, strict=True):
        loss = loss_of(model, strings)
        gradients = torch.autograd.grad(loss, list(trained(model).values()), allow_unused=True)
        expected.append((loss.item(), gradients))
    stack = stacked(models)
    losses, contrast = stack.losses(packed(tokens, extra)[0])
    assert contrast is None
    losses.sum().backward()
    grads = {
        k: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for k, leaf in stack.leaves.items()
    }
    for index, (loss, gradients) in enumerate(expected):
        assert losses[index].item() == pytest.approx(loss, rel=1e-9)
        found = stack._views(grads, index)
        assert set(found) == set(trained(models[index]))
        for name, gradient in zip(trained(models[index]), gradients, strict=True):
            wanted = torch.zeros_like(found[name]) if gradient is None else gradient
            # xielu has two parameters in single precision
            near = 1e-7 if wanted.dtype == torch.float64 else 1e-4
            torch.testing.assert_close(
                found[name], wanted, rtol=near, atol=near / 10 * float(1 + wanted.abs().max())
            )


def test_the_models_are_views_until_they_are_released():
    models = random_models("gpt-learned", 2, 0)
    before = [
        {name: p.detach().clone() for name, p in model.named_parameters()} for model in models
    ]
    stack = stacked(models)
    for model, saved in zip(models, before, strict=True):
        assert all(torch.equal(p, saved[name]) for name, p in model.named_parameters())
    tokens = torch.stack([TASK.sample(3, generator=torch.Generator().manual_seed(0))] * 2)
    stack.step([packed(tokens)[0]], 0.1)
    assert not any(
        torch.equal(p, before[0][name])
        for name, p in trained(models[0]).items()
        if "b_K" not in name
    )
    stack.release(0)
    kept = {name: p.detach().clone() for name, p in models[0].named_parameters()}
    other = models[1].W_U.detach().clone()
    stack.step([packed(tokens)[0]], 0.1)
    assert all(torch.equal(p, kept[name]) for name, p in models[0].named_parameters())
    assert all(p.is_contiguous() for p in models[0].parameters())
    assert not torch.equal(models[1].W_U, other)


def test_a_parameter_that_no_pass_reads_is_named():
    """A model's own pass may read what the stack does not know; it would never be trained."""
    (model,) = random_models("gpt", 1, 0)
    model.pos_embed.register_parameter("along", torch.nn.Parameter(torch.zeros(1)))
    batch, _ = packed(TASK.sample(2, generator=torch.Generator().manual_seed(0))[None])
    with pytest.raises(RuntimeError, match=r"^pos_embed\.along would stay as it is"):
        stacked([model]).step([batch], 0.1)


def test_what_is_not_finite_stays_where_it_is():
    """In forward pass, gradients, and the state of Adam."""
    models = random_models("gpt", 3, 0)
    alone = random_models("gpt", 3, 0)
    tokens = torch.stack(
        [TASK.sample(4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    )
    batch, _ = packed(tokens)
    with torch.no_grad():
        models[1].blocks[0].attn.W_Q[0, 0, 0] = float("nan")
        models[1].embed.W_E[0, 0] = float("inf")
    broken, sound = stacked(models), stacked(alone)
    for _ in range(3):
        totals, _ = broken.step([batch], 0.01)
        expected, _ = sound.step([batch], 0.01)
        assert totals[1] != totals[1]
        assert [totals[0], totals[2]] == [expected[0], expected[2]]
    for index in (0, 2):
        assert all(
            torch.equal(p, trained(alone[index])[name])
            for name, p in trained(models[index]).items()
        )
