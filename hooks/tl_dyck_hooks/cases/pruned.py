"""Cases pruned from random networks: pairs of models to compare, and nothing else to ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from tl_dyck.judge.cases import CaseKind, small_task
from tl_dyck.judge.facts import answers_alike
from tl_dyck.judge.protocol import Case, Fact, Question
from tl_dyck.kit.environment import one_thread
from tl_dyck.language import DyckLanguage
from tl_dyck.models.construct.plan import Plan, random_network
from tl_dyck.models.construct.pruning import prune
from tl_dyck_hooks.cases.heads import Workshop
from tl_dyck_hooks.cases.pose import choose, every_prefix, generator_of, pose

PRUNED = {
    "twins": "Two networks pruned from one at random; they share a matrix that neither needs.",
}

_ITEMS = 16  # random products for a weight: enough for every prefix to come out right
# Weights from -1.5 to 1.5 reach larger targets than the theorem's from -1 to 1.
_SCALE = 1.5
_LENGTH = 7  # brackets: every prefix of so many is run
_LOGITS = 0.05  # the targets' logits are made smaller: random weights reach no larger ones


@one_thread()
def prune_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A network pruned to uniform attention, and a twin to compare it with (Theorem 3, Cor. 3).

    The twin closes all brackets as the first does, or each with the next type. Of heads nothing is
    asked: what pruning leaves of those that do nothing is zero, which all can see.

    Args:
        kind: of model.
        seed: of everything that is drawn.
        given: of ``shared``, the name of the matrix that both keep, or nothing.
    """
    generator = generator_of(kind, seed)
    language = DyckLanguage(2, 2)
    shop = Workshop(language, generator, gains=False)
    # 0.05: nearly uniform attention, for random products reach no large scores
    target, other = (
        shop.model([[shop.head(shop.balanced(0.05, 0.0), shop.slots(), 0)]]) for _ in range(2)
    )
    unlike = bool(torch.rand(1, generator=generator) < 0.5)
    with torch.no_grad():
        for model in (target, other):
            model.unembed.W_U.mul_(_LOGITS)
        if unlike:
            order = torch.arange(language.d_vocab)
            # odd tokens are closing brackets: each type's is given to the next
            order[language.closing] = order[language.closing].roll(1)
            other.unembed.W_U.copy_(other.unembed.W_U[:, order])
    matrix = choose(generator, ("W_Q", "W_K", "W_V"))
    shared = given.get("shared", f"blocks.1.attn.{matrix}")
    network = random_network(
        target,
        other,
        items=_ITEMS,
        # 2³¹: what every generator of torch takes as a seed
        seed=int(torch.randint(2**31, (1,), generator=generator)),
        scale=_SCALE,
        spare_layers=1,
    )
    plan = Plan.of(target, other, idle=1)
    a, b = (prune(each, network, plan, shared).model for each in (target, other))
    task = small_task(2, 2, _LENGTH)
    case, _ = pose(every_prefix(a, task, f"{kind}-{seed}"), task, generator)
    alike = answers_alike(a, b, language, _LENGTH)
    return replace(case, other=b), [Fact(Question("same", (_LENGTH,)), alike, "enumerated")]


TWINS = CaseKind(make=prune_case, knobs=("shared",))
