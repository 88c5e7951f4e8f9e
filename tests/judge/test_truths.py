"""What heads do, counted again on all strings, by hooks of our own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.foreign import foreign
from tests.judge.methods.network import exchanged, right_brackets, stacks, strings
from tests.judge.test_recount import margins
from tl_dyck import adopt, construct, head_truths, load_task
from tl_dyck.judge import JudgeError, make_case
from tl_dyck.kit.check import WrongTypeError, WrongValueError
from tl_dyck.language import DyckLanguage, Vocabulary
from tl_dyck.tasks import DyckTask

N = 5


def somebodys(task: DyckTask) -> Any:
    """Two layers with norms and positions, in float32, not trained, other ids: right by chance."""
    sizes = {"d_model": 8, "n_ctx": 16, "d_head": 4, "n_heads": 2, "d_mlp": 8, "d_vocab": 6}
    model = foreign("gpt2", **sizes, act_fn="gelu")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            generator = torch.Generator().manual_seed(len(name))
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.6)
        model.unembed.b_U[:] = torch.tensor([-30.0, -30, 0, 0.3, 0, 0.3])
    ids = Vocabulary(task.language, {"(": 2, ")": 3, "[": 4, "]": 5}, bos=1, padding=0)
    return adopt(model, ids)


def twins_of(row: list[int]) -> list[list[int]]:
    """After each token: other brackets of the top's type that were opened at its depth."""
    held = stacks(row)
    opened = [place for place in range(1, len(row)) if row[place] % 2 == 0]
    return [
        [p for p in opened if p <= place and p != stack[-1]
         and (row[p], len(held[p])) == (row[stack[-1]], len(stack))] if stack else []
        for place, stack in enumerate(held)
    ]  # fmt: skip


def by_hand(model: Any, task: DyckTask, layer: int, head: int) -> dict[str, float]:
    """The shares of one head, by hooks of our own on all strings."""
    rows, name = strings(task.n_types, task.max_depth, N), f"blocks.{layer}.attn.hook_"
    tokens, right = torch.tensor(rows), right_brackets(rows)
    probability = task.distribution.log_prob(tokens, mode="prefix").exp().numpy()
    weight = probability[:, None] * (right >= 0)
    twins = [twins_of(row) for row in rows.tolist()]
    has_twin = weight * np.array([[bool(each) for each in row] for row in twins])
    intact = margins(model(tokens).numpy(), right) > 1e-9
    _, own = model.run_with_cache(tokens)
    _, cache = model.run_with_cache(torch.tensor(exchanged(rows, task.n_types)))

    means, n_cells = 0, 0.0
    for z, chance in zip(own[name + "z"][:, :, head], probability, strict=True):
        means, n_cells = means + chance * z.sum(0), n_cells + chance * (N + 1)

    def lost(point: str, put: Any, weight: np.ndarray = weight) -> float:
        at = (slice(None), slice(None), head) if point == "z" else (slice(None), head)

        def hook(found: Tensor, hook: Any) -> Tensor:
            found[at] = put(found[at])
            return found

        logits = model.run_with_hooks(tokens, fwd_hooks=[(name + point, hook)]).numpy()
        broken = intact & (margins(logits, right) <= 1e-9)
        return float((weight * broken).sum() / weight.sum())

    def hidden(keys: list[list[int | None]]) -> float:
        mask = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
        for string, row in enumerate(keys):
            for query, key in enumerate(row):
                mask[string, query, key or 0] = key is not None
        return lost("attn_scores", lambda old: old.masked_fill(mask, -torch.inf), has_twin)

    flat = torch.tril(torch.ones(N + 1, N + 1)) / torch.arange(1, N + 2)[:, None]
    tops = [[stack[-1] if stack else None for stack in stacks(row)] for row in rows.tolist()]
    turns = range(max(len(each) for row in twins for each in row))
    chosen = [
        [[sorted(t)[-1 - turn % len(t)] if t else None for t in row] for row in twins]
        for turn in turns
    ]
    return {
        "needed": lost("z", torch.zeros_like),
        "mean": lost("z", lambda old: (means / n_cells).expand_as(old)),
        "carries": lost("z", lambda _: cache[name + "z"][:, :, head]),
        "pattern": lost("pattern", lambda old: flat.to(old).expand_as(old)),
        "top": hidden(tops),
        "twin": float(np.mean([hidden(keys) for keys in chosen])),
    }


def test_of_somebodys_model_of_two_layers_every_share_is_as_counted_by_hand() -> None:
    task = load_task("dyck-2-4")
    model = somebodys(task)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    truths = head_truths(model, task, N)
    assert len(truths.table) == 4
    assert model.cfg.dtype == torch.float32
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), "the model was changed"
    exact = model.to(torch.float64, print_details=False)
    for row in truths.table.iloc[[0, 3]].itertuples():  # one of each layer
        with torch.no_grad():
            known = by_hand(exact, task, row.layer, row.head)
        found = truths.table.loc[row.Index]
        for name, value in known.items():
            assert found[name] == pytest.approx(value, abs=1e-6), (row.layer, row.head, name)
    shares = truths.table[["needed", "mean", "carries", "pattern", "top", "twin"]]
    assert (shares.max() > 0.01).all(), "nothing to tell apart"


def test_which_head_reads_the_top() -> None:
    task = load_task("dyck-2-4")
    reads = head_truths(construct.stack(task.language), task, 7)
    counts = head_truths(construct.uniform_attention(task.language), task, 7)
    assert reads.reads_top(0, 0).verdict == "yes"
    assert counts.reads_top(0, 0).verdict == "no"  # it misses a twin as much
    assert counts.table["twin"].item() == pytest.approx(counts.table["top"].item())
    assert counts.table["top"].item() > 0.1
    assert reads.reads_top(0, 0).question == "Does L0H0 read the top of the stack?"
    share = f"{reads.table['top'].item():.2%}"
    assert share in reads.reads_top(0, 0).text
    decoy = construct.decoy_head(construct.uniform_attention(task.language), "stack")
    assert head_truths(decoy, task, 7).reads_top(0, 1).verdict == "no"


def test_what_is_shown() -> None:
    task = load_task("dyck-2-4")
    truths = head_truths(construct.stack(task.language), task, 7)
    row = truths.table.iloc[0]
    (line,) = [line for line in str(truths).splitlines() if line.startswith("L0H0")]
    names = ("needed", "mean", "carries", "pattern", "top", "twin")
    assert line.split()[1:] == [f"{row[name]:.2%}" for name in names]
    # a shortest prefix that breaks: without the head nothing says that a bracket is open
    first = truths.broken.iloc[0]
    assert [*first[["change", "prefix", "right", "said"]]] == ["needed", "[", "]", "[ or ("]
    drawn = {trace.name: trace.x[0] for trace in truths.plot().data}
    assert drawn == pytest.approx({name: row[name] for name in names})


def test_what_is_refused() -> None:
    task = load_task("dyck-2-4")
    model = construct.stack(task.language)
    truths = head_truths(model, task, 4)
    with pytest.raises(JudgeError, match="no head L1H0"):
        truths.reads_top(1, 0)
    with pytest.raises(JudgeError, match="prefixes of 20 brackets, too many"):
        head_truths(model, task, 20)
    with pytest.raises(WrongValueError, match="length must be at least 3"):
        head_truths(model, task, 2)
    with pytest.raises(WrongTypeError, match="task must be a DyckTask"):
        head_truths(model, "dyck-2-4", 5)  # type: ignore[arg-type]
    with torch.no_grad():
        model.unembed.W_U.zero_()
    with pytest.raises(JudgeError, match="nothing can break"):
        head_truths(model, task, 5)
    model.cfg.attention_dir = "bidirectional"
    with pytest.raises(JudgeError, match="looks ahead"):
        head_truths(model, task, 5)


def test_a_case_goes_on_from_embeddings() -> None:
    """And gradients flow: integrated gradients by hand are complete."""
    case, _ = make_case("uniform", 0)
    embedded = case.model.embed(case.tokens[:5]).detach()
    torch.testing.assert_close(case.forward(embedded), case.model(case.tokens[:5]))
    start = torch.zeros_like(embedded)
    whole = torch.zeros_like(embedded)
    steps = 400
    for step in range(steps):
        here = (start + (step + 0.5) / steps * (embedded - start)).requires_grad_()
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(case.forward(here)[:, -1, 0].sum(), here)
        whole += grad * (embedded - start) / steps
    with torch.no_grad():
        change = (case.forward(embedded) - case.forward(start))[:, -1, 0].sum()
    assert float(whole.sum()) == pytest.approx(float(change), rel=0.05)


def test_other_brackets_of_the_tops_type() -> None:
    language = DyckLanguage(2, 4)
    tokens = language.parse("()([](")  # 2 and 3 are ( and ), or 0 and 1
    tokens = tokens[tokens < language.n_brackets]
    others = language.others_of_type(tokens[None])[0]
    assert others[-1].nonzero().flatten().tolist() == [0, 2]
    assert others[2].nonzero().flatten().tolist() == [0]
    assert not others[1].any()  # nothing is open
    assert others[4].nonzero().flatten().tolist() == [0]
