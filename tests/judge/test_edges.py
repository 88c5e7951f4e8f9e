"""Edges, held to a forward pass of our own that keeps every term of the stream apart."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.enumerated import tops
from tl_dyck.judge import Case, JudgeError, make_case
from tl_dyck.judge.built_cases import small_task
from tl_dyck.judge.edges import Edge, Edges, edge_facts
from tl_dyck.judge.facts import Enumeration, exchange_types, head_facts
from tl_dyck.models import DyckTransformerConfig, build_model

N = 3


def somebodys(block: str) -> Case:
    """Two layers of two heads, drawn: right by chance."""
    task = small_task(3, 2, N)
    config = DyckTransformerConfig(
        n_types=3, max_depth=2, model_name="judged", embedding="onehot", block=block, n_layers=2,
        n_heads=2, d_model=16, d_head=5, d_mlp=12, act_fn="relu", n_ctx=16, dtype=torch.float64,
        initializer_range=0.2,
    )  # fmt: skip
    model = build_model(config, seed=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "pos_embed.W_pos":  # zero, where there are no positions
                weight += 0.2 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        model.unembed.b_U[::2] = -30.0  # opening brackets and BOS are no answers
    rows = task.language.enumerate(N, "prefix")[:5]
    tokens = torch.cat([torch.full((5, 1), task.language.bos_token), rows], 1)
    return Case(model, task, N, tokens)


def enumerated(case: Case) -> Enumeration:
    return Enumeration(case.model, case.task.language, case.length, case.task.distribution)


def heads_of(block: Any, read: Tensor) -> list[Tensor]:
    """What each head puts out where it reads a stream, ``[pos, d_head]``, key by key."""
    attn, found = block.attn, []
    read = block.ln1(read[None])[0]
    for head in range(attn.W_Q.shape[0]):
        q, k, v = (
            read @ getattr(attn, f"W_{name}")[head] + getattr(attn, f"b_{name}")[head]
            for name in "QKV"
        )
        rows = []
        for query in range(len(read)):
            scores = [
                math.exp(float(q[query] @ k[key]) / attn.attn_scale) for key in range(query + 1)
            ]
            rows.append(sum(s * v[key] for key, s in enumerate(scores)) / sum(scores))
        found.append(torch.stack(rows))
    return found


def passed(model: Any, row: list[int], other: list[Tensor], edge: Edge | None) -> tuple[Any, Any]:
    """Logits with one edge exchanged; and what embedding and heads put out, by layer.

    Args:
        model: of two layers.
        row: a string.
        other: the second of what this returned for the other string.
        edge: which is exchanged; None for none.
    """

    def added(block: Any, z: list[Tensor]) -> Tensor:
        out = sum(each @ block.attn.W_O[head] for head, each in enumerate(z)) + block.attn.b_O
        return block.ln1_post(out[None])[0] if hasattr(block, "ln1_post") else out

    terms: list[Tensor] = [model.embed(torch.tensor([row]))[0]]
    puts: list[Any] = [terms[0]]
    places: dict[int, int] = {}  # of what a layer's attention adds, among the terms

    def stream(reader: Any) -> Tensor:
        read = list(terms)
        if edge is not None and edge.reader == reader:
            if edge.source is None:
                read[0] = other[0]
            else:
                layer, head = edge.source
                z = list(puts[1 + layer])
                z[head] = other[1 + layer][head]
                read[places[layer]] = added(model.blocks[layer], z)
        return sum(read)

    for layer, block in enumerate(model.blocks):
        z = [heads_of(block, stream((layer, head)))[head] for head in range(2)]
        puts.append(z)
        places[layer] = len(terms)
        terms.append(added(block, z))
        terms.append(block.mlp(block.ln2(stream((layer, None))[None]))[0])
    last = getattr(model, "ln_final", torch.nn.Identity())
    return model.unembed(last(stream(None)[None]))[0], puts


@pytest.mark.parametrize("block", ["eq6", "gpt"])
@torch.no_grad()
def test_every_edge_is_as_in_a_pass_of_our_own(block: str) -> None:
    case = somebodys(block)
    facts = {Edge(*fact.question.target): fact for fact in edge_facts(enumerated(case))}
    assert Counter(edge.kind for edge in facts) == {
        "embedding → head": 4, "head → head": 4, "head → MLP": 6, "head → logits": 4
    }  # fmt: skip
    n, k = case.task.language.n_brackets, case.task.n_types
    moved, lost, nats = (dict.fromkeys(facts, 0.0) for _ in range(3))
    asked, whole = 0.0, 0.0

    def ahead(logits: Tensor, right: int) -> float:
        return float(k * logits[right] - logits[1:n:2].sum()) / (k - 1)

    for string in case.task.language.enumerate(N, "prefix").tolist():
        row = [case.task.language.bos_token, *string]
        far, other = passed(case.model, [row[0], *((t + 2) % n for t in string)], [], None)
        intact, _ = passed(case.model, row, other, None)
        torch.testing.assert_close(intact, case.model(torch.tensor([row]))[0])
        p = float(case.task.distribution.log_prob(torch.tensor([row]), mode="prefix").exp())
        after = {edge: passed(case.model, row, other, edge)[0] for edge in facts}
        for place, top in tops(row):
            asked += p
            right = top + 1
            whole += p * (ahead(far[place], right) - ahead(intact[place], right))
            for edge, logits in after.items():
                before, now = intact[place], logits[place]
                moved[edge] += p * (ahead(now, right) - ahead(before, right))
                told = [float(each[right] - each.exp().sum().log()) for each in (now, before)]
                nats[edge] += p * (told[0] - told[1])
                lost[edge] += p * (int(before.argmax()) == right != int(now.argmax()))
    for edge, fact in facts.items():
        told = fact.sizes
        assert told["logits"] == pytest.approx(abs(moved[edge]) / asked, abs=1e-9), str(edge)
        assert told["of the difference"] == pytest.approx(abs(moved[edge] / whole), abs=1e-9)
        assert told["nats"] == pytest.approx(abs(nats[edge]) / asked, abs=1e-9), str(edge)
        assert fact.effect == pytest.approx(lost[edge] / asked, abs=1e-12), str(edge)
        assert fact.answer == (lost[edge] > 0)
    assert {fact.answer for fact in facts.values()} == {True, False}
    assert min(fact.sizes["logits"] for fact in facts.values()) > 1e-5, "nothing to tell apart"


def test_all_of_a_first_layers_input_is_what_its_head_puts_out() -> None:
    """So that an edge from the embedding carries if and only if its head does."""
    case, _ = make_case("trained", 0)
    of = {
        fact.question.target[1]: fact
        for fact in edge_facts(enumerated(case))
        if fact.question.target[0] is None
    }
    every = head_facts(enumerated(case))
    carries = [fact for fact in every if fact.question.kind == "carries"]
    assert len(carries) == len(of) > 1
    for fact in carries:
        assert of[fact.question.target].answer == fact.answer
        assert of[fact.question.target].effect == pytest.approx(fact.effect, abs=1e-12)


def test_what_a_reader_does_not_read_is_not_asked() -> None:
    """Where weights between the two are zero; and all else is."""
    case = somebodys("eq6")
    with torch.no_grad():
        case.model.blocks[1].mlp.W_in.zero_()
    asked = {str(Edge(*fact.question.target)) for fact in edge_facts(enumerated(case))}
    edges = Edges(case.model, case.tokens, exchange_types(case.task.language, case.tokens)).edges
    assert {str(edge) for edge in edges} - asked == {
        f"L{layer}H{head} → MLP1" for layer in (0, 1) for head in (0, 1)
    }


def test_a_sum_of_edges_is_what_is_handed_on_where_there_is_no_norm() -> None:
    for block, alike in (("gpt", True), ("eq6", False)):
        case = somebodys(block)
        edges = Edges(case.model, case.tokens, case.tokens.flip(0))
        same = [
            torch.allclose(edges.stream_change(edge), edges.source_change(edge))
            for edge in edges.edges
            if edge.source is not None
        ]
        assert set(same) == {alike}
        assert not case.model.cfg.use_attn_in  # a copy is run


def test_names_and_refusals() -> None:
    assert str(Edge((0, 1), (1, 0))) == "L0H1 → L1H0"
    assert str(Edge(None, (1, None))) == "embedding → MLP1"
    assert str(Edge((1, 0), None)) == "L1H0 → logits"
    with pytest.raises(JudgeError, match="not 'eq49'"):
        edge_facts(enumerated(somebodys("eq49")))
