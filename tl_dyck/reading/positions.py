"""How a model knows where a token stands: one record a scheme, by TransformerLens' names.

Behind one layer every scheme is a table of (query's token and position; key's token and position),
for queries and keys are made of one token each. A record says what is added to what and by which
weights, and so all that `tl_dyck.rnn.scores` and certificates take. To add a scheme, add a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class PositionScheme:
    """What positions do to a score; weights are tables by position, or by distance.

    Attributes:
        name: TransformerLens' name of it, the value of ``cfg.positional_embedding_type``; it has
            none for "standard+rotary".
        weights: their names, each with its sizes by the names that `RNNConfig` has for them.
        in_stream: whether ``W_pos`` is added to the embedding, so that values have it as well.
        in_attended: whether ``W_pos`` is added to what queries and keys are made of, behind the
            norm, and to nothing else.
        turns: whether queries and keys are turned by angles of their own positions.
        by_distance: whether ``W_near`` is added to scores, by how far the key is behind the query.
    """

    name: str
    weights: Mapping[str, tuple[str, ...]]
    in_stream: bool = False
    in_attended: bool = False
    turns: bool = False
    by_distance: bool = False


_TABLE = {"W_pos": ("n_ctx", "d_model")}
_TURNS = {"rotary_cos": ("n_ctx", "d_head"), "rotary_sin": ("n_ctx", "d_head")}

#: Sinusoids are "standard", with a table that nobody trains.
POSITIONS: dict[str, PositionScheme] = {
    each.name: each
    for each in (
        PositionScheme(name="standard", weights=_TABLE, in_stream=True),
        PositionScheme(name="shortformer", weights=_TABLE, in_attended=True),
        PositionScheme(name="rotary", weights=_TURNS, turns=True),
        PositionScheme(
            name="standard+rotary", weights={**_TABLE, **_TURNS}, in_stream=True, turns=True
        ),
        PositionScheme(name="alibi", weights={"W_near": ("n_ctx", "n_heads")}, by_distance=True),
    )
}
