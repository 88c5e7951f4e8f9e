"""Is attention to the top of the stack used? Mask it, and mask other brackets beside it.

The answer in question is a closing bracket far from its opening one, the top of the stack. Masked
is one key, at the query that answers. Controls on the same answers: *another* opening bracket of
the same type; where there is one, its *twin*, of the same type and at the same depth (long closed);
and *any* other bracket. A model that counts brackets is hurt by all of these, one that looks the
top up by that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tl_dyck.models import DyckTransformer
from tl_dyck.reading.interventions import Hook, hide_keys, key_of_each, key_of_one, run
from tl_dyck.tasks import DyckTask

#: An answer is far if its opening bracket stands more than so many places before it.
FAR = 8


@final
@dataclass(frozen=True, kw_only=True)
class FarAnswers:
    """Strings, one far closing bracket of each, and the keys that are masked.

    Attributes:
        tokens: BOS first, and as filling.
        query: where the answer is read: one before it.
        answer: the right closing bracket.
        keys: the brackets to mask, by kind: "top", "other", "twin" (-1 where there is none), "any".
        others: for every query: its top of the stack ("top") and another opening bracket of that
            type ("other"), -1 where there is none.
        share: of all far answers, the share that is kept: those that have another.
    """

    tokens: Int[Tensor, "n pos"]
    query: Int[Tensor, " n"]
    answer: Int[Tensor, " n"]
    keys: dict[str, Int[Tensor, " n"]]
    others: dict[str, Int[Tensor, "n pos"]]
    share: float

    def __len__(self) -> int:
        return len(self.query)


def random_key(
    allowed: Bool[Tensor, "*batch key"], generator: torch.Generator
) -> Int[Tensor, "*batch"]:
    """One allowed key each, all as likely; -1 where none is."""
    drawn = torch.rand(allowed.shape, generator=generator) * allowed
    return torch.where(allowed.any(-1), drawn.argmax(-1), -1)


def far_answers(task: DyckTask, n: int, generator: torch.Generator) -> FarAnswers:
    """Draw training strings, and of each one far answer that has another opening bracket."""
    language = task.language
    tokens = task.sample(n, generator=generator)
    length = tokens.shape[1]
    here = torch.arange(length)
    top, depth, opens = (
        language.top_of_stack(tokens),
        language.depth(tokens),
        language.is_open(tokens),
    )
    others = language.others_of_type(tokens)  # [n, query, key]
    far = torch.zeros_like(opens)  # by query
    far[:, :-1] = (language.is_close(tokens) & (here - language.matching(tokens) > FAR))[:, 1:]
    answerable = far & others.any(-1)
    query = random_key(answerable, generator)
    kept = query >= 0
    tokens, query, top, depth = tokens[kept], query[kept], top[kept], depth[kept]
    others = others[kept]
    rows = torch.arange(len(query))
    its_top, its_others = top[rows, query], others[rows, query]
    twins = its_others & (depth == depth[rows, its_top][:, None])
    brackets = (tokens != language.bos_token) & (here < query[:, None])
    keys = {
        "top": its_top,
        "other": random_key(its_others, generator),
        "twin": random_key(twins, generator),
        "any": random_key(brackets & (here != its_top[:, None]), generator),
    }
    return FarAnswers(
        tokens=tokens,
        query=query,
        answer=tokens[rows, query + 1],
        keys=keys,
        others={"top": top, "other": random_key(others, generator)},
        share=float(answerable.sum() / far.sum().clamp_min(1)),
    )


def hit(
    model: DyckTransformer, far: FarAnswers, hooks: list[Hook] | tuple[Hook, ...] = ()
) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
    """Which answers are right: of all tokens, and among the closing brackets."""
    logits = run(model, far.tokens, hooks)[torch.arange(len(far)), far.query]
    closes = torch.arange(1, logits.shape[-1], 2)
    chosen = closes[logits[:, closes].argmax(-1)]
    return logits.argmax(-1) == far.answer, chosen == far.answer


def mask_effects(
    model: DyckTransformer, far: FarAnswers, heads: Sequence[int] | None = None
) -> dict[str, float | None]:
    """Accuracy on far answers, whole and with each key masked, in both layers and in each alone.

    Returns:
        ``far`` and ``far_type`` (among closing brackets) without a mask; ``<kind>_<where>`` and
        ``<kind>_<where>_type`` with one, where is "all", "first" or "last"; for twins, on the
        answers that have one, also ``twin_far`` without and ``twin_top_<where>`` with the top
        masked; ``every_<kind>`` if at every query its own key is masked, in all layers.
    """
    length = far.tokens.shape[1]
    last = model.cfg.n_layers - 1
    places = {"all": range(last + 1), "first": (0,), "last": (last,)}
    found: dict[str, float | None] = {}
    twin = far.keys["twin"] >= 0

    def put(name: str, right: tuple[Tensor, Tensor], where: Tensor | None = None) -> None:
        for end, each in zip(("", "_type"), right, strict=True):
            some = each if where is None else each[where]
            found[name + end] = float(some.double().mean()) if len(some) else None

    whole = hit(model, far)
    put("far", whole)
    put("twin_far", whole, twin)
    for kind, key in far.keys.items():
        hidden = key_of_one(far.query, key, length)
        for where, layers in places.items():
            right = hit(model, far, hide_keys(hidden, layers, heads))
            put(f"{kind}_{where}", right, twin if kind == "twin" else None)
            if kind == "top":
                put(f"twin_top_{where}", right, twin)
    for kind, each in far.others.items():
        put(f"every_{kind}", hit(model, far, hide_keys(key_of_each(each), places["all"], heads)))
    return found
