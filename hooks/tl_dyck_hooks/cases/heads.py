"""Heads by their role, and models made of them: exact, of any number of heads and layers.

A model here has a minimal first layer (Eq. 19) and Eq. 6 blocks. One block has two circuits of one
law: the heads of each write, between them, how many brackets of each type and depth are open, up to
a positive factor, and units of the MLP read its top of the stack. What the first reads closes
brackets; what the second reads makes opening ones less likely, after which nobody asks here. LN_C
divides by a positive number, which turns no sign, so that the model closes every prefix of any
length right, whatever the patterns are. Weights of the two differ in what the unembedding does with
them, and in nothing else: gains that no prediction sees, and a turn of the stream, are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tl_dyck.language import DyckLanguage
from tl_dyck.models import DyckTransformer
from tl_dyck.models.construct.parts import (
    NEVER,
    Coordinates,
    States,
    empty_model,
    write_decoder,
    write_unembed,
)
from tl_dyck.models.construct.second_layer import StackCoordinates

#: Far above the rounding of a layer in which all heads are silent, far below what a worker writes.
_LN_C = 1e-4


@final
@dataclass(frozen=True)
class Head:
    """One head, in the coordinates of the residual stream.

    Attributes:
        query: ``[d_model + 1, r]``, the last row is a bias; scores are query · key, without the
            division by √d_head.
        key: ``[d_model, r]``.
        value: ``[d_model + 1, s]``, likewise with a bias.
        out: ``[s, d_model]``.
    """

    query: Float[Tensor, "d_model_1 r"]
    key: Float[Tensor, "d_model r"]
    value: Float[Tensor, "d_model_1 s"]
    out: Float[Tensor, "s d_model"]


@final
class Workshop:
    """Makes heads, and models of them, for one language; all that is drawn is from one generator.

    Args:
        language: of the models.
        generator: of everything that is drawn.
        n_ctx: longest input of the models.
        positions: whether they have linear positions, which a head needs that attends to the top of
            the stack exactly.
        gains: whether what no prediction sees is drawn, orders too; without that weights are small.
    """

    def __init__(
        self,
        language: DyckLanguage,
        generator: torch.Generator,
        *,
        n_ctx: int = 128,
        positions: bool = False,
        gains: bool = True,
    ) -> None:
        self.language, self.generator, self.n_ctx = language, generator, n_ctx
        self.gains = gains
        coordinates = Coordinates()
        self.states = States(language, coordinates)
        self.circuits = [StackCoordinates.take(language, coordinates) for _ in range(2)]
        self.written = range(self.states.size, coordinates.size)
        self.position = coordinates.take(1)[0] if positions else None
        self.d_model = coordinates.size
        self.n_states = self.states.size

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    # --- where a head looks -----------------------------------------------------------------------

    def scores(self, table: Float[Tensor, "state state"]) -> tuple[Tensor, Tensor]:
        """Query and key of a head whose score is a table by states (query, key)."""
        # + 1: the last row of queries and values is their bias
        query = torch.zeros(self.d_model + 1, self.n_states, dtype=torch.float64)
        key = torch.zeros(self.d_model, self.n_states, dtype=torch.float64)
        query[: self.n_states] = table
        key[: self.n_states] = torch.eye(self.n_states, dtype=torch.float64)
        return query, key

    def levels(self, gap: float) -> tuple[Tensor, Tensor]:
        """Opening brackets of the query's depth score higher by `gap`: a stack, up to ties."""
        table = torch.zeros(self.n_states, self.n_states, dtype=torch.float64)
        for depth in range(1, self.language.max_depth + 1):
            opening = [self.states.open(t, depth) for t in range(self.language.n_types)]
            for query in self.states.at_depth(depth):
                table[query, opening] = gap
        return self.scores(table)

    def top(self, gap: float) -> tuple[Tensor, Tensor]:
        """The top of the stack, or BOS: that depth, and of it the latest; needs positions."""
        assert self.position is not None
        # as in `construct.stack`: n_ctx positions are worth n_ctx gap / 2, one gap more is asked
        # for, and the logarithm outweighs n_ctx keys of another depth
        match = gap * (self.n_ctx / 2 + 1) + math.log(self.n_ctx)
        query, key = self.levels(match)
        query[self.states.at_depth(0), self.states.bos] = match
        latest = torch.zeros(self.d_model + 1, 1, dtype=torch.float64)
        # from the bias: the same for every query
        latest[-1] = 1
        at = torch.zeros(self.d_model, 1, dtype=torch.float64)
        at[self.position] = gap * self.n_ctx / 2  # `gap` for two positions
        return torch.cat([query, latest], 1), torch.cat([key, at], 1)

    def balanced(self, spread: float, shift: float) -> tuple[Tensor, Tensor]:
        """Random scores that satisfy Eq. 11: a pair's excess does not depend on the query.

        A number of each query is added to all of its scores, which no softmax sees.

        Args:
            spread: standard deviation of the scores.
            shift: standard deviation of the excess c(t, d) of opening over closing bracket; with 0
                both score alike, and uniform attention would do as well.
        """
        table = spread * self._draw(self.n_states, self.n_states)
        for t in range(self.language.n_types):
            for depth in range(1, self.language.max_depth + 1):
                opening, closing = self.states.open(t, depth), self.states.close(t, depth - 1)
                excess = float(shift * self._draw(1))
                middle = (table[:, opening] + table[:, closing]) / 2
                # half to each, so that neither of a pair is scored higher in the mean
                table[:, opening], table[:, closing] = middle + excess / 2, middle - excess / 2
        more = [[math.log(self.gain(2.0))] for _ in range(self.n_states)]
        return self.scores(table + self.gain(1.0) * torch.tensor(more, dtype=torch.float64))

    # --- what it does with that -------------------------------------------------------------------

    def gain(self, spread: float) -> float:
        """A positive factor, drawn: its logarithm is uniform between −spread and spread."""
        drawn = torch.rand(1, generator=self.generator, dtype=torch.float64)
        return math.exp(spread * float(2 * drawn - 1)) if self.gains else 1.0

    def slots(self) -> list[tuple[int, int]]:
        """Every (type, depth) that the stack can hold."""
        k, deepest = self.language.n_types, self.language.max_depth
        return [(t, depth) for t in range(k) for depth in range(1, deepest + 1)]

    def head(
        self,
        looks: tuple[Tensor, Tensor],
        slots: Sequence[tuple[int, int]],
        circuit: int,
        *,
        pairs: bool = True,
        size: float = 1.0,
        left: float = 0.0,
        flat: bool = False,
    ) -> Head:
        """Writes what is open at some (type, depth), and that there is a BOS.

        Args:
            looks: query and key: `balanced`, or `top`.
            slots: its share of the stack.
            circuit: 0 or 1: to whose coordinates it writes, by type and depth.
            pairs: whether closing brackets take away what their partners brought (Eq. 27-33);
                without that the pattern must be that of `top`.
            size: factor of what it writes of brackets.
            left: share of what closing brackets should take away and do not.
            flat: whether it writes to the other circuit as well, the type alone: at all depths, so
                that its pattern must be that of `top`.
        """
        to, other, (query, key) = self.circuits[circuit], self.circuits[1 - circuit], looks
        value = torch.zeros(self.d_model + 1, len(slots) + 1, dtype=torch.float64)
        out = torch.zeros(len(slots) + 1, self.d_model, dtype=torch.float64)
        row = query[self.states.closing[0]] @ key.T
        for index, (t, depth) in enumerate(slots):
            opening, closing = self.states.open(t, depth), self.states.close(t, depth - 1)
            excess = float(row[opening] - row[closing]) if pairs else 0.0
            # E v of a pair's brackets cancel, x being the excess: e^(s + x/2) e^(-x/2) of the one
            # that opens, and -e^(s - x/2) e^(x/2) of the one that closes
            value[opening, index] = size * math.exp(-excess / 2)
            if pairs:
                value[closing, index] = -size * math.exp(excess / 2) * (1 - left)
            # the sum over coordinates is 0: P takes nothing away
            out[index, to.stack[t][depth - 1]], out[index, to.sink] = 1, -1
            if flat:
                # to all D depths of that type, so that the sink takes D away
                out[index, other.stack[t]], out[index, other.sink] = 1, -self.language.max_depth
        value[self.states.bos, -1] = self.gain(1.0)
        for each in (to, other) if flat else (to,):
            out[-1, each.bos], out[-1, each.sink] = 1, -1
        return Head(query, key, value, out)

    # --- models -----------------------------------------------------------------------------------

    @torch.no_grad()
    def model(
        self,
        layers: Sequence[Sequence[Head]],
        reader: str = "linear",
        *,
        q: float = 0.5,
        closer: int = 0,
    ) -> DyckTransformer:
        """A model with these heads; every head's inner basis is turned at random.

        Args:
            layers: heads of each layer, as many in each.
            reader: "linear": the logit of a closing bracket grows with what its coordinate holds;
                "step": it knows zero from more only, and is flat elsewhere.
            q: probability of an opening bracket.
            closer: which circuit closes brackets; of two models that differ in this alone, all but
                the unembedding is the same.
        """
        k, deepest = self.language.n_types, self.language.max_depth
        d_head = max(max(head.key.shape[1], head.out.shape[0]) for row in layers for head in row)
        shape: dict[str, Any] = {"n_layers": len(layers), "n_heads": len(layers[0])}
        if self.position is not None:
            shape |= {"position": "linear", "t_max": self.n_ctx}
        model = empty_model(
            self.language,
            model_name="judged",
            embedding="onehot",
            d_model=self.d_model,
            d_head=d_head,
            # two units for each type and depth below D, which a step needs; a
            # linear reader uses half of them
            d_mlp=2 * len(self.circuits) * k * max(1, deepest - 1),
            n_ctx=self.n_ctx,
            ln_c=_LN_C,
            dtype=torch.float64,
            **shape,
        )
        for block, heads in zip(model.blocks, layers, strict=True):
            for index, head in enumerate(heads):
                self._write(block.attn, index, head, d_head)
        closes, opens = self.circuits[closer], self.circuits[1 - closer]
        unit = 0
        for circuit in self.circuits:
            unit = write_reader(model.blocks[-1].mlp, self.states, circuit, reader, unit)
        write_unembed(model, self.states, closes.excluded, q, opening_knows_type=True)
        for t in range(k):
            # a linear reader takes away, where the first circuit's gives
            model.unembed.W_U[opens.excluded[t], 2 * t] = -NEVER if reader == "linear" else NEVER
        if self.gains:
            self._turn_stream(model)
            reorder(model, self.generator)
        return model

    def _turn_stream(self, model: Any) -> None:
        """Turn what heads write at random, and its readers likewise; its mean stays what it is."""
        n = len(self.written)
        # a unit vector along the mean, which LN_C takes away: the turn leaves it where it is
        mean = torch.full((n, 1), n**-0.5, dtype=torch.float64)
        basis = torch.linalg.qr(torch.cat([mean, self._draw(n, n - 1)], 1))[0]
        inner = torch.block_diag(torch.ones(1, 1, dtype=torch.float64), self._turn(n - 1))
        turn = basis @ inner @ basis.T
        some = slice(self.written.start, self.written.stop)
        for block in model.blocks:
            block.attn.W_O[:, :, some] = block.attn.W_O[:, :, some] @ turn
            block.mlp.W_in[some] = turn.T @ block.mlp.W_in[some]
            block.mlp.W_out[:, some] = block.mlp.W_out[:, some] @ turn
        model.unembed.W_U[some] = turn.T @ model.unembed.W_U[some]

    def _write(self, attn: Any, index: int, head: Head, d_head: int) -> None:
        looks, moves = (self._turn(d_head) for _ in range(2))
        # what queries gain keys lose, and what values gain outputs lose
        more, louder = self.gain(1.5), self.gain(1.5)
        r, s = head.key.shape[1], head.out.shape[0]
        query = head.query @ looks[:r] * attn.attn_scale * more
        attn.W_Q[index], attn.b_Q[index] = query[:-1], query[-1]
        attn.W_K[index] = head.key @ looks[:r] / more
        value = head.value @ moves[:s] * louder
        attn.W_V[index], attn.b_V[index] = value[:-1], value[-1]
        attn.W_O[index] = moves[:s].T @ head.out / louder

    def _turn(self, size: int) -> Tensor:
        """A random orthogonal matrix."""
        turned: Tensor = torch.linalg.qr(self._draw(size, size))[0]
        return turned


@torch.no_grad()
def reorder(model: Any, generator: torch.Generator, written: int | None = None) -> None:
    """Draw the order of MLPs' units, and of coordinates, so that no place tells a circuit.

    Args:
        model: is changed; what it computes is not, but for rounding.
        generator: is copied, so that what is drawn next is not changed.
        written: the first coordinate that heads write to; it and the later ones change places.
    """
    again, cfg = generator.clone_state(), model.cfg
    stream = torch.arange(cfg.d_model)
    if written is not None:
        stream[written:] = written + torch.randperm(cfg.d_model - written, generator=again)
    for block in model.blocks:
        units, attn, mlp = torch.randperm(cfg.d_mlp, generator=again), block.attn, block.mlp
        for name in ("W_Q", "W_K", "W_V"):
            setattr(attn, name, nn.Parameter(getattr(attn, name)[:, stream]))
        attn.W_O, attn.b_O = nn.Parameter(attn.W_O[..., stream]), nn.Parameter(attn.b_O[stream])
        mlp.W_in, mlp.b_in = nn.Parameter(mlp.W_in[stream][:, units]), nn.Parameter(mlp.b_in[units])
        mlp.W_out = nn.Parameter(mlp.W_out[units][:, stream])
        mlp.b_out = nn.Parameter(mlp.b_out[stream])
    model.unembed.W_U = nn.Parameter(model.unembed.W_U[stream])
    for norm in model.modules():
        if isinstance(getattr(norm, "w", None), nn.Parameter):
            norm.w, norm.b = nn.Parameter(norm.w[stream]), nn.Parameter(norm.b[stream])


def write_reader(mlp: Any, states: States, to: StackCoordinates, reader: str, unit: int) -> int:
    """Write the MLP that closes the top of the stack, after a closing bracket at depth d ≥ 1.

    The linear one has one unit for each type and depth d, relu(x − 2 (1 − gate)), which hands x on,
    an output of LN_C and so at most 1, where the last bracket closes at depth d: evidence for the
    type. The step knows x ≥ 3e-4 from x ≤ 1e-4 (as `parts.write_decoder`).

    Returns:
        The next free unit after `unit`.
    """
    k, deepest = states.language.n_types, states.language.max_depth
    for t in range(k):
        for depth in range(1, deepest):
            gate = states.at_depth(depth, opening=False)
            read = to.stack[t][depth - 1]
            if reader == "linear":
                mlp.W_in[read, unit] = 1
                mlp.W_in[gate, unit] = 2
                mlp.b_in[unit] = -2
                mlp.W_out[unit, to.excluded[t]] = -1
                unit += 1
            else:
                # 1 below a quarter of the margin, 0 above three quarters: 1e-4 and 3e-4
                unit = write_decoder(mlp, unit, read, gate, to.excluded[t], margin=4e-4)
    return unit
