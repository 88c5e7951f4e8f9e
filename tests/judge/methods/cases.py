"""The judged cases that methods are held to their oracles on, and what is asked about each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from tests.judge.methods.network import Network, stacks
from tl_dyck.judge import Case, Question, make_case
from tl_dyck.judge.public import cases

Questions = dict[str, list[Question]]

#: Of a trained model whose edges are asked about: with seed 5 one attempt at training will do.
TWO_LAYERS = {"n_heads": 2, "n_types": 2, "max_depth": 2}

#: Kind, seed and knobs; between them one to six heads, one to four layers, 2 and 3 types, with and
#: without positions, with LN_C after attention and with LayerNorm before it. Where it is said what
#: is left over, "stack" and "same" are both asked.
_ALONE = {"n_heads": 1, "n_layers": 1, "n_types": 2, "max_depth": 2, "reader": "linear"}
_MADE = {
    "deep": (
        "stack",
        6,
        {"reader": "linear", "n_layers": 2, "n_heads": 2, "drift": 0.0},
    ),  # positions
    "backup": ("backup", 2, {}),  # at least four heads
    "stack": ("stack", 6, {"n_heads": 3, "n_layers": 1, "drift": 0.0}),  # positions, with a partner
    "balanced": ("balanced", 8, {"n_types": 3, "max_depth": 2, "drift": 0.0}),  # with a partner
    "trained": ("trained", 1_000_000, {}),  # comes with the package
    "twins": ("twins", 1, {}),  # four layers, with a partner
    "post-norm": ("post-norm", 5, TWO_LAYERS),
    "pre-norm": ("pre-norm", 5, TWO_LAYERS),
    "features": ("features", 0, {}),
    "two heads": ("balanced", 0, {"n_heads": 2, "n_layers": 1, "n_types": 2, "max_depth": 2}),
    "exact": ("balanced", 0, {**_ALONE, "max_depth": 3, "drift": 0.0}),
    "drifting": ("uniform", 0, {**_ALONE, "max_depth": 3, "drift": 0.1}),
    "drifting, 3 types": ("balanced", 0, {**_ALONE, "n_types": 3, "drift": 0.1}),
}

HEADS = ("needed", "carries", "pattern", "depth")


@lru_cache
def network(model: object) -> Network:
    return Network(model)


@lru_cache
def judged(name: str) -> tuple[Case, Questions]:
    """A case by its name here, and questions by their kind."""
    if name == "broken":
        return _broken()
    if name.startswith("disturbed"):
        return _disturbed((0, 11) if name.endswith("again") else (11, 0))
    kind, seed, knobs = _MADE[name]
    if kind == "trained":
        found = next(iter(cases("quick", kinds=kind)))  # LayerNorm, twice; two heads
        case, facts = found.case, found.facts
    else:
        case, facts = make_case(kind, seed, **knobs)
    # what is slow is asked about every tenth; half of the strings do
    case = replace(case, name="0", tokens=case.tokens[::2])
    questions: Questions = {}
    for fact in facts:
        questions.setdefault(fact.question.kind, []).append(fact.question)
    cfg = case.model.cfg
    heads = [(i, j) for i in range(cfg.n_layers) for j in range(cfg.n_heads)]
    for asked in HEADS:  # all, also those that are not asked about
        questions[asked] = [Question(asked, head) for head in heads]
    if kind in ("uniform", "balanced", "stack", "backup", "trained"):
        # of a model whose brackets all agree nothing is asked: of its strings, then
        whole = [Question("token", (tuple(row), 1)) for row in case.tokens[:3].tolist()]
        questions["token"] = [*questions.get("token", []), *_shorter(whole)]
        questions["token"] += _shorter(questions["token"])
        assert questions["token"]
    for kind in ("stack", "same"):
        if kind in questions:  # lengths of several questions differ
            questions[kind] = [*questions[kind], Question(kind, (case.length,))]
    return case, questions


def _shorter(asked: Sequence[Question]) -> list[Question]:
    """Questions about the longest prefix of each prefix that also closes and is open, if any."""
    found = {}
    for row, _ in (question.target for question in asked):
        held = stacks(list(row))
        for end in range(len(row) - 2, 1, -1):
            if row[end] % 2 and held[end]:
                found[row[: end + 1]] = [
                    Question("token", (row[: end + 1], place)) for place in range(1, end + 1)
                ]
                break
    return [question for each in found.values() for question in each]


def _broken() -> tuple[Case, Questions]:
    """A model whose MLP answers with the other type, beside the intact one: right up to 2."""
    case, _ = judged("exact")
    broken = copy.deepcopy(case.model)
    with torch.no_grad():
        written = broken.blocks[0].mlp.W_out
        closing = written @ broken.unembed.W_U[:, 1:4:2]  # of units; two of each type write alike
        first, second = (closing.abs().amax(1) > 1e-9) & (
            closing.argmin(1) == torch.tensor([[0], [1]])
        )
        written[first], written[second] = written[second].clone(), written[first].clone()
    asked = [(2,), (3,), (case.length - 1,)]
    questions = {kind: [Question(kind, target) for target in asked] for kind in ("stack", "same")}
    return replace(case, model=broken, other=case.model), questions


def _disturbed(seeds: tuple[int, int]) -> tuple[Case, Questions]:
    """Two layers in which every weight is shifted at random, so that all parts read each other."""
    case, questions = judged("deep")
    models = [copy.deepcopy(case.model) for _ in range(2)]
    with torch.no_grad():
        # with 11 one head is read most by queries, the other by keys; with 0 both by values
        for model, seed in zip(models, seeds, strict=True):
            generator = torch.Generator().manual_seed(seed)
            for weight in model.parameters():
                weight += 0.1 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return replace(case, model=models[0], other=models[1]), questions
