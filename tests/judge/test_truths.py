"""What heads do, held to a walk through one prefix at a time, by hooks of our own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.foreign import foreign
from tl_dyck import adopt, construct, head_truths, load_task
from tl_dyck.check import WrongTypeError, WrongValueError
from tl_dyck.judge import JudgeError, make_case
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


def walked(row: list[int]) -> tuple[list[int], list[int], list[list[int]]]:
    """After each token: the right bracket, the top, and its twins, by a stack; -1 for none."""
    stack: list[int] = []
    right, tops, twins, depth_of = [-1], [-1], [[]], {}
    for place, token in enumerate(row[1:], start=1):
        if token % 2 == 0:
            stack.append(place)
            depth_of[place] = len(stack)
        else:
            stack.pop()
        top = stack[-1] if stack else -1
        same = [p for p in depth_of if p != top and top > 0 and row[p] == row[top]]
        right.append(row[top] + 1 if stack else -1)
        tops.append(top)
        twins.append([p for p in same if depth_of[p] == len(stack)])
    return right, tops, twins


def by_hand(model: Any, task: DyckTask, layer: int, head: int) -> dict[str, float]:
    """The shares of one head, string by string."""
    name = f"blocks.{layer}.attn.hook_"
    lost: dict[str, float] = dict.fromkeys(("needed", "carries", "pattern", "top"), 0.0)
    twin_lost: dict[int, float] = {}
    all_asked = with_twin = 0.0
    strings = task.language.enumerate(N, "prefix")
    most = max(len(t) for row in strings.tolist() for t in walked([-9, *row])[2])
    for string in strings:
        row = [task.language.bos_token, *string.tolist()]
        tokens = torch.tensor([row])
        right, tops, twins = walked(row)
        p = float(task.distribution.log_prob(tokens, mode="prefix").exp())
        other = torch.tensor([[row[0], *((t + 2) % 4 for t in row[1:])]])
        _, cache = model.run_with_cache(other)
        z = cache[name + "z"]

        def good(hooks: list[Any], tokens: Tensor = tokens, right: list[int] = right) -> list[bool]:
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[0]
            found = []
            for place, answer in enumerate(right):
                rest = [float(x) for i, x in enumerate(logits[place]) if i != answer]
                found.append(answer < 0 or float(logits[place][answer]) > max(rest) + 1e-9)
            return found

        def put(value: Any) -> list[Any]:
            def hook(found: Tensor, hook: Any) -> Tensor:
                found[:, :, head] = value
                return found

            return [(name + "z", hook)]

        def flat(pattern: Tensor, hook: Any) -> Tensor:
            for query in range(pattern.shape[-1]):
                pattern[:, head, query] = 0
                pattern[:, head, query, : query + 1] = 1 / (query + 1)
            return pattern

        def hide(keys: list[int]) -> list[Any]:
            def hook(scores: Tensor, hook: Any) -> Tensor:
                for query, key in enumerate(keys):
                    if key > 0:
                        scores[:, head, query, key] = -math.inf
                return scores

            return [(name + "attn_scores", hook)]

        intact = good([])
        ways = {
            "needed": good(put(0.0)),
            "carries": good(put(z[:, :, head])),
            "pattern": good([(name + "pattern", flat)]),
            "top": good(hide(tops)),
        }
        for turn in range(most):
            keys = [sorted(t, reverse=True)[turn % len(t)] if t else -1 for t in twins]
            broken = good(hide(keys))
            for place, answer in enumerate(right):
                if answer >= 0 and twins[place]:
                    wrong = intact[place] and not broken[place]
                    twin_lost[turn] = twin_lost.get(turn, 0.0) + p * wrong
        for place, answer in enumerate(right):
            if answer < 0:
                continue
            all_asked += p
            with_twin += p * bool(twins[place])
            for way, after in ways.items():
                counts = way != "top" or bool(twins[place])
                lost[way] += p * (intact[place] and not after[place] and counts)
    found = {way: lost[way] / all_asked for way in ("needed", "carries", "pattern")}
    twin = sum(twin_lost.values()) / most / with_twin
    return {**found, "top": lost["top"] / with_twin, "twin": twin}


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
    shares = truths.table[["needed", "carries", "pattern", "top", "twin"]]
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
    names = ("needed", "carries", "pattern", "top", "twin")
    assert line.split()[1:] == [f"{row[name]:.2%}" for name in names]
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
    with pytest.raises(WrongTypeError, match="a task of brackets"):
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
