"""Edges, held to a forward pass of our own in which one reader alone reads a changed sum."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.judge.conftest import SHIPPED
from tests.judge.methods.cases import network
from tests.judge.methods.edges import change, read_by_one
from tests.judge.methods.heads import logit_differences, other_rows, right_of, rights, run
from tests.judge.methods.network import strings
from tl_dyck.judge import Case, JudgeError, make_case
from tl_dyck.judge.asked import exchange_types
from tl_dyck.judge.cases import small_task
from tl_dyck.judge.edges import Edge, Edges, edge_facts
from tl_dyck.judge.facts import Enumeration, head_facts
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


@pytest.mark.parametrize("block", ["eq6", "gpt"])
@torch.no_grad()
def test_every_edge_is_as_in_a_pass_of_our_own(block: str) -> None:
    case = somebodys(block)
    facts = {Edge(*fact.question.target): fact for fact in edge_facts(enumerated(case))}
    assert Counter(edge.kind for edge in facts) == {
        "embedding → head": 4, "head → head": 4, "head → MLP": 6, "head → logits": 4
    }  # fmt: skip
    case = replace(case, tokens=torch.tensor(strings(3, 2, N)))
    embed, right = network(case.model).embed(case.tokens.numpy()), rights(case)
    weight = case.task.distribution.log_prob(case.tokens, mode="prefix").exp().numpy()
    weight = weight[:, None] * (right >= 0)
    weight /= weight.sum()

    def found(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Difference of logits, log-probability, and whether the right one is the first."""
        said = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return logit_differences(case, logits), right_of(said, right), logits.argmax(-1) == right

    intact, far = (found(run(case, rows).logits) for rows in (None, other_rows(case)))
    for edge, fact in facts.items():
        delta = change(case, edge.source, through=True)
        after = found(read_by_one(case, embed, delta, edge.reader))
        moved, told = (abs((weight * (after[i] - intact[i])).sum()) for i in (0, 1))
        assert fact.sizes["logits"] == pytest.approx(moved, abs=1e-9), str(edge)
        whole = abs((weight * (far[0] - intact[0])).sum())
        assert fact.sizes["of the difference"] == pytest.approx(moved / whole, abs=1e-9)
        assert fact.sizes["nats"] == pytest.approx(told, abs=1e-9), str(edge)
        lost = (weight * (intact[2] & ~after[2])).sum()
        assert fact.effect == pytest.approx(lost, abs=1e-12), str(edge)
        assert fact.answer == (lost > 0)
    assert {fact.answer for fact in facts.values()} == {True, False}
    assert min(fact.sizes["logits"] for fact in facts.values()) > 1e-5, "nothing to tell apart"


def test_all_of_a_first_layers_input_is_what_its_head_puts_out() -> None:
    """So that an edge from the embedding carries if and only if its head does."""
    case, _ = make_case("trained", SHIPPED)
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


def test_later_heads_read_and_no_others() -> None:
    """All edges of a head, by layer: heads above, MLPs from its own layer on, logits."""
    case = somebodys("gpt")
    found = {Edge(*fact.question.target) for fact in edge_facts(enumerated(case))}
    heads = [(layer, head) for layer in range(2) for head in range(2)]
    wanted = {Edge(None, reader) for reader in heads}
    for source in heads:
        wanted |= {Edge(source, reader) for reader in heads if source[0] == 0 and reader[0] == 1}
        wanted |= {Edge(source, (layer, None)) for layer in range(source[0], 2)}
        wanted.add(Edge(source, None))
    assert found == wanted
