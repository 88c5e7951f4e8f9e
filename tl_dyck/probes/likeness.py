"""Stack-likeness: how much attention goes to the top of the stack, where a parser would look.

Ebrahimi et al. 2020 and Yao et al. 2021 saw such heads; this is their pattern made a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_draws, check_instance, check_seed
from tl_dyck.kit.environment import one_thread
from tl_dyck.language import DyckLanguage, Language
from tl_dyck.plotting.plot_recipes import dots_figure, frame
from tl_dyck.probes.balance import tokens_of
from tl_dyck.reading.attention import share_of_largest
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.reading.inputs import language_of, language_with_stack, looks_ahead, measured
from tl_dyck.reading.states import StateIndex
from tl_dyck.tasks import Task
from tl_dyck.tasks.dyck import complete_strings

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@final
@dataclass(frozen=True, kw_only=True)
class StackLikeness:
    """Attention to the last unmatched opening bracket, averaged over queries at which there is one.

    Attributes:
        mass: attention weight on the top of the stack, per layer and head, ``[layer, head]``.
        argmax: share of queries whose largest weight is there; one of n equal ones counts 1/n,
            ``[layer, head]``.
        mass_at_closing: `mass`, over queries that are closing brackets only: there the top of the
            stack is never the query itself, so this is the part that takes a look back.
        argmax_at_closing: likewise.
        chance: expectation of `mass` and `argmax`, for uniform rows and for rows that are uniform
            on the simplex: mean of 1 / number of allowed positions.
        chance_at_closing: likewise.
        ceiling_at_closing: the most that `mass_at_closing` and `argmax_at_closing` can be for a
            head that gives equal weight to equal brackets of equal depth, as every head without
            positions behind a minimal first layer does: mean of 1 / number of brackets that it
            cannot tell from the top of the stack.
        n_queries: number of queries, closing ones included.
    """

    mass: Float[np.ndarray, "layer head"]
    argmax: Float[np.ndarray, "layer head"]
    mass_at_closing: Float[np.ndarray, "layer head"]
    argmax_at_closing: Float[np.ndarray, "layer head"]
    chance: float
    chance_at_closing: float
    ceiling_at_closing: float
    n_queries: int

    def to_frame(self) -> pd.DataFrame:
        """One row per layer and head, a column per attribute."""
        names = ("mass", "argmax", "mass_at_closing", "argmax_at_closing", "chance")
        columns = {name: getattr(self, name) for name in (*names, "chance_at_closing")}
        return frame([("layer", 0), ("head", 0)], columns)

    def plot(self) -> go.Figure:
        """Attention of each head on the top of the stack, beside chance."""
        return dots_figure(
            self.to_frame(),
            {"all queries": "mass", "closing brackets": "mass_at_closing"},
            rows="layer {layer}, head {head}",
            unit="attention weight on the top of the stack",
            title="Stack-likeness",
            marked={"chance": self.chance, "chance, closing": self.chance_at_closing},
        )

    def __repr__(self) -> str:
        def rows(values: np.ndarray) -> str:
            return " ".join("/".join(f"{value:.2f}" for value in layer) for layer in values)

        return (
            f"StackLikeness(mass by layer {rows(self.mass)}, at closing brackets "
            f"{rows(self.mass_at_closing)}; chance {self.chance:.2f}, at closing brackets "
            f"{self.chance_at_closing:.2f}; there a head that cannot tell equal "
            f"brackets apart has at most {self.ceiling_at_closing:.2f})"
        )

    def __str__(self) -> str:
        heads = self.to_frame()
        named = [f"layer {row.layer}, head {row.head}" for row in heads.itertuples()]
        shown = heads[["mass", "argmax", "mass_at_closing", "argmax_at_closing"]].set_axis(named)
        shown.loc["chance"] = [*[self.chance] * 2, *[self.chance_at_closing] * 2]
        shown.columns = ["weight", "largest", "weight at )", "largest at )"]
        return (
            f"Attention on the top of the stack, at {self.n_queries:,} positions:\n"
            f"{shown.map('{:.2f}'.format).to_string()}\n"
            "weight: mean attention weight there; largest: share of positions whose largest weight "
            "is there;\nat ): closing brackets only, where a head that cannot tell equal brackets "
            f"apart has at most {self.ceiling_at_closing:.2f}."
        )


@checked
@one_thread()  # these are many small products, which threads slow down
def stack_likeness(
    model: Any,
    data: Task | Int[Tensor, "*batch pos"] | None = None,
    *,
    language: Language | None = None,
    n: SupportsIndex = 200,
    seed: SupportsIndex = 0,
) -> StackLikeness:
    """Measure how much the heads of a model look at the top of the stack.

    Args:
        model: any HookedTransformer.
        data: a task, from which `n` training strings are drawn, or tokens, BOS included; None for
            complete strings of the language.
        language: of the tokens; None for the task's, or the model's own.
        n: number of strings.
        seed: of the strings.

    Raises:
        TypeError: not one HookedTransformer.
        NoStackError: a language without brackets.
        VocabularyError: nobody has said which of the model's ids are the brackets: see
            `tl_dyck.adopt`.
        ValueError: no query has anything on its stack, or weights are NaN or infinite.
    """
    measured(model, "stack-likeness")
    n, seed = check_draws(n), check_seed(seed)
    if language is not None:
        check_instance("language", language, Language, "a language")
    language_with_stack(model, "stack_likeness is", language, data)
    data = complete_strings(language_of(model, language)) if data is None else data
    return likeness_of_strings(model, *tokens_of(model, data, language, n, seed))


def likeness_of_strings(
    model: Any, data: Int[Tensor, "batch pos"], language: DyckLanguage
) -> StackLikeness:
    """As `stack_likeness`, and NaN of a model that diverged."""
    top = language.top_of_stack(data)
    queries = (top >= 0) & (data != language.bos_token)  # BOS at the end is filling
    if not queries.any():
        raise ValueError(
            "no position of these strings has an unmatched opening bracket before it; "
            "give longer strings"
        )
    pattern, allowed = _patterns(model, data, language)
    # −1 (nothing is open) cannot be an index; `queries` leaves those out
    key = top.clamp_min(0)[None, :, None, :]
    by_head = "layer batch head query -> layer head batch query"
    # [layer, batch, head, query, 1]: of each query the weight on its top
    weight = pattern.gather(-1, key[..., None].expand(*pattern.shape[:4], 1))[..., 0]
    on_top = rearrange(weight, by_head)
    is_top = rearrange(share_of_largest(pattern, key), by_head)
    # a uniform head gives the top one of all keys that are seen; the best without
    # positions one of those like it
    chance, ceiling = 1 / allowed, 1 / _like_the_top(data, top, language, allowed)

    def mean(values: Float[Tensor, "*any batch query"], where: Bool[Tensor, "batch query"]) -> Any:
        return (
            values[..., where].mean(-1).numpy()
            if where.any()
            else np.full(values.shape[:-2], np.nan)
        )

    closing = queries & language.is_close(data)
    return StackLikeness(
        mass=mean(on_top, queries),
        argmax=mean(is_top, queries),
        mass_at_closing=mean(on_top, closing),
        argmax_at_closing=mean(is_top, closing),
        chance=float(mean(chance, queries)),
        chance_at_closing=float(mean(chance, closing)),
        ceiling_at_closing=float(mean(ceiling, closing)),
        n_queries=int(queries.sum()),
    )


def _like_the_top(
    tokens: Int[Tensor, "batch pos"],
    top: Int[Tensor, "batch pos"],
    language: DyckLanguage,
    allowed: Float[Tensor, "batch pos"],
) -> Float[Tensor, "batch pos"]:
    """How many keys that a query may look at are the same bracket at the same depth as its top."""
    states = StateIndex(language).of(tokens, language.clipped_depth(tokens))
    wanted = states.gather(1, top.clamp_min(0))
    seen = torch.arange(tokens.shape[1]) < allowed[:, :, None]
    # a head without positions cannot tell these keys apart: it gives each the same weight
    same: Tensor = ((states[:, None] == wanted[:, :, None]) & seen).sum(-1)
    return same.clamp_min(1).double()


def _patterns(
    model: Any, tokens: Int[Tensor, "batch pos"], language: DyckLanguage
) -> tuple[Float[Tensor, "layer batch head query key"], Float[Tensor, "batch query"]]:
    """The patterns, and how many keys each query may look at.

    A model that looks ahead is shown each string without its filling.
    """
    tokens = tokens.to(model.cfg.device)
    places = torch.arange(1, tokens.shape[1] + 1, dtype=torch.float64).expand(tokens.shape)
    if not looks_ahead(model):
        return attention_patterns(model, tokens).double(), places
    written = tokens.cpu() != language.bos_token
    # places count from 1, so the largest is a length; BOS alone is 1
    lengths = (written * places).amax(-1).clamp_min(1).long()
    n, pos = tokens.shape
    found = torch.zeros(model.cfg.n_layers, n, model.cfg.n_heads, pos, pos, dtype=torch.float64)
    for length in lengths.unique().tolist():
        rows = lengths == length
        found[:, rows, :, :length, :length] = attention_patterns(
            model, tokens[rows, :length]
        ).double()
    return found, lengths[:, None].double().expand(tokens.shape)
