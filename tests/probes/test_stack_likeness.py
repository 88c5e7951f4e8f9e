import numpy as np
import pytest
import torch

from tests.enumerated import stacks
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, construct, get_config
from tl_dyck.probes.likeness import stack_likeness
from tl_dyck.tasks import load_task

LANGUAGE = DyckLanguage(2, 4)


def test_agrees_with_a_slow_reference():
    task = load_task("dyck-2-4")
    model = build_model(get_config("gpt", task, n_heads=2, initializer_range=0.6))
    tokens = task.sample(20, generator=torch.Generator().manual_seed(0))
    found = stack_likeness(model, tokens)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        for head in range(2):
            pattern = cache["pattern", layer][:, head].tolist()
            rows = {"all": [], "closing": []}
            for string, weights in zip(tokens.tolist(), pattern, strict=True):
                for position, stack in enumerate(stacks(string)):
                    if not stack or string[position] == LANGUAGE.bos_token:
                        continue
                    row, top = weights[position], stack[-1]
                    ties = sum(weight > 0.99999 * max(row) for weight in row)
                    entry = (row[top], (row[top] > 0.99999 * max(row)) / ties, 1 / (position + 1))
                    rows["all"].append(entry)
                    if string[position] % 2 == 1:
                        rows["closing"].append(entry)
            everywhere, closing = np.mean(rows["all"], 0), np.mean(rows["closing"], 0)
            assert found.mass[layer, head] == pytest.approx(everywhere[0], rel=1e-5)
            assert found.argmax[layer, head] == pytest.approx(everywhere[1])
            assert found.chance == pytest.approx(everywhere[2])
            assert found.mass_at_closing[layer, head] == pytest.approx(closing[0], rel=1e-5)
            assert found.argmax_at_closing[layer, head] == pytest.approx(closing[1])
            assert found.chance_at_closing == pytest.approx(closing[2])
            assert found.n_queries == len(rows["all"])


def test_uniform_attention_has_the_mass_of_chance():
    found = stack_likeness(
        build_model(get_config("gpt-uniform", "dyck-2-4")), load_task("dyck-2-4"), n=50
    )
    assert found.mass == pytest.approx(np.full((2, 1), found.chance), rel=1e-5)
    assert found.mass_at_closing == pytest.approx(
        np.full((2, 1), found.chance_at_closing), rel=1e-5
    )
    assert found.argmax == pytest.approx(np.full((2, 1), found.chance), rel=1e-5)  # all weights tie


def test_the_ceiling_of_heads_that_cannot_tell_equal_brackets_apart():
    """Counted string by string; and no head without positions is above it."""
    task = load_task("dyck-2-4")
    language, shares = task.language, []
    tokens = torch.cat([
        torch.full((600, 1), language.bos_token),
        task.distribution.sample(600, 8, generator=torch.Generator().manual_seed(0)),
    ], dim=1)  # fmt: skip
    for string in tokens[:, 1:].tolist():
        stack, seen = [], []
        for token in string:
            if token % 2 == 0:
                stack.append(token)
                seen.append((token, len(stack)))
            else:
                stack.pop()
                if stack:
                    shares.append(1 / seen.count((stack[-1], len(stack))))
    for seed in range(3):
        found = stack_likeness(build_model(get_config("figure2-onehot", task), seed), tokens)
        assert found.ceiling_at_closing == pytest.approx(np.mean(shares))
        assert found.argmax_at_closing.max() <= found.ceiling_at_closing + 1e-9
        assert found.mass_at_closing.max() <= found.ceiling_at_closing
    assert found.ceiling_at_closing == pytest.approx(0.90, abs=0.02)  # an independent audit's
    # a head with positions is not bound by it
    free = stack_likeness(construct.stack(language), tokens)
    assert free.argmax_at_closing.max() == pytest.approx(1)
