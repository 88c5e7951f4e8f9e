"""Heads by their role, and models made of them: exact, of any number of heads and layers.

A model here has a minimal first layer (Eq. 19) and Eq. 6 blocks. One block does the work: its
workers write, between them, how many brackets of each type and depth are open, up to a positive
factor; its MLP reads the top of the stack. All that other heads write goes to coordinates that
nothing reads, or is zero, or the same everywhere. LN_C divides by a positive number, which turns no
sign, so that the model closes every prefix of any length right, whatever the patterns are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.language import DyckLanguage
from tl_dyck.models import DyckTransformer
from tl_dyck.models.construct.parts import (
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
        role: what it is there for, in a word.
        query: ``[d_model + 1, r]``, the last row is a bias; scores are query · key, without the
            division by √d_head.
        key: ``[d_model, r]``.
        value: ``[d_model + 1, s]``, likewise with a bias.
        out: ``[s, d_model]``.
    """

    role: str
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
    """

    def __init__(
        self,
        language: DyckLanguage,
        generator: torch.Generator,
        *,
        n_ctx: int = 128,
        positions: bool = False,
    ) -> None:
        self.language, self.generator, self.n_ctx = language, generator, n_ctx
        coordinates = Coordinates()
        self.states = States(language, coordinates.take(States.size(language)))
        self.to = StackCoordinates.take(language, coordinates)
        self.unread = coordinates.take(2 * language.n_types)  # in pairs of opposite sign
        self.position = coordinates.take(1)[0] if positions else None
        self.d_model = coordinates.size
        self.n_states = States.size(language)

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    # --- where a head looks -----------------------------------------------------------------------

    def scores(self, table: Float[Tensor, "state state"]) -> tuple[Tensor, Tensor]:
        """Query and key of a head whose score is a table by states (query, key)."""
        query = torch.zeros(self.d_model + 1, self.n_states, dtype=torch.float64)
        key = torch.zeros(self.d_model, self.n_states, dtype=torch.float64)
        query[: self.n_states] = table
        key[: self.n_states] = torch.eye(self.n_states, dtype=torch.float64)
        return query, key

    def uniform(self) -> tuple[Tensor, Tensor]:
        """All positions alike."""
        return self.scores(torch.zeros(self.n_states, self.n_states, dtype=torch.float64))

    def random(self, spread: float) -> tuple[Tensor, Tensor]:
        """Scores drawn by state, of standard deviation `spread`."""
        return self.scores(spread * self._draw(self.n_states, self.n_states))

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
        match = gap * (self.n_ctx / 2 + 1) + math.log(self.n_ctx)
        query, key = self.levels(match)
        query[self.states.at_depth(0), self.states.bos] = match
        latest = torch.zeros(self.d_model + 1, 1, dtype=torch.float64)
        latest[-1] = 1
        at = torch.zeros(self.d_model, 1, dtype=torch.float64)
        at[self.position] = gap * self.n_ctx / 2  # `gap` for two positions
        return torch.cat([query, latest], 1), torch.cat([key, at], 1)

    def balanced(self, spread: float, shift: float) -> tuple[Tensor, Tensor]:
        """Random scores that satisfy Eq. 11: a pair's excess does not depend on the query.

        Args:
            spread: standard deviation of the scores.
            shift: standard deviation of the excess c(t, d) of opening over closing bracket; with 0
                both score alike.
        """
        table = spread * self._draw(self.n_states, self.n_states)
        for t in range(self.language.n_types):
            for depth in range(1, self.language.max_depth + 1):
                opening, closing = self.states.open(t, depth), self.states.close(t, depth - 1)
                excess = float(shift * self._draw(1))
                middle = (table[:, opening] + table[:, closing]) / 2
                table[:, opening], table[:, closing] = middle + excess / 2, middle - excess / 2
        return self.scores(table)

    # --- what it does with that -------------------------------------------------------------------

    def _read_out(
        self, looks: tuple[Tensor, Tensor], slots: Sequence[tuple[int, int]], pairs: bool
    ) -> tuple[Tensor, Tensor]:
        """Value and output that write open brackets of some (type, depth) to coordinates."""
        query, key = looks
        value = torch.zeros(self.d_model + 1, len(slots) + 1, dtype=torch.float64)
        out = torch.zeros(len(slots) + 1, self.d_model, dtype=torch.float64)
        any_query = self.states.closing[0]
        row = query[any_query] @ key.T
        for index, (t, depth) in enumerate(slots):
            opening, closing = self.states.open(t, depth), self.states.close(t, depth - 1)
            excess = float(row[opening] - row[closing]) if pairs else 0.0
            value[opening, index] = math.exp(-excess / 2)
            if pairs:
                value[closing, index] = -math.exp(excess / 2)
            out[index, self.to.stack[t][depth - 1]], out[index, self.to.sink] = 1, -1
        value[self.states.bos, -1] = 1
        out[-1, self.to.bos], out[-1, self.to.sink] = 1, -1
        return value, out

    def slots(self) -> list[tuple[int, int]]:
        """Every (type, depth) that the stack can hold."""
        k, deepest = self.language.n_types, self.language.max_depth
        return [(t, depth) for t in range(k) for depth in range(1, deepest + 1)]

    def worker(
        self,
        looks: tuple[Tensor, Tensor],
        slots: Sequence[tuple[int, int]],
        *,
        pairs: bool = True,
        size: float = 1.0,
        role: str = "worker",
    ) -> Head:
        """Writes what is open at some (type, depth).

        Args:
            looks: query and key: balanced or uniform, or `top`.
            slots: its share of the stack.
            pairs: whether closing brackets take away what their partners brought (Eq. 27-33);
                without that the pattern must be that of `top`.
            size: factor of what it writes.
            role: its name.
        """
        value, out = self._read_out(looks, slots, pairs)
        return Head(role, *looks, value * size, out)

    def direct_worker(self, looks: tuple[Tensor, Tensor], slots: Sequence[tuple[int, int]]) -> Head:
        """Writes the type of the top of the stack for the unembedding, which reads it directly.

        Args:
            looks: as `top`.
            slots: its share of the stack.
        """
        value = torch.zeros(self.d_model + 1, len(slots), dtype=torch.float64)
        out = torch.zeros(len(slots), self.d_model, dtype=torch.float64)
        for index, (t, depth) in enumerate(slots):
            value[self.states.open(t, depth), index] = 1
            out[index, self.to.excluded[t]], out[index, self.to.sink] = -1, 1
        return Head("worker", *looks, value, out)

    def unread_worker(self, looks: tuple[Tensor, Tensor], size: float = 1.0) -> Head:
        """Writes the types that it sees to coordinates that nothing reads."""
        k, deepest = self.language.n_types, self.language.max_depth
        value = torch.zeros(self.d_model + 1, k, dtype=torch.float64)
        out = torch.zeros(k, self.d_model, dtype=torch.float64)
        for t in range(k):
            value[[self.states.open(t, depth) for depth in range(1, deepest + 1)], t] = size
            out[t, self.unread[2 * t]], out[t, self.unread[2 * t + 1]] = 1, -1
        return Head("unread", *looks, value, out)

    def constant(self, looks: tuple[Tensor, Tensor], size: float = 1.0) -> Head:
        """Writes the same vector wherever it looks: a pattern without a meaning."""
        value = torch.zeros(self.d_model + 1, 1, dtype=torch.float64)
        value[-1] = size
        out = torch.zeros(1, self.d_model, dtype=torch.float64)
        out[0, self.unread[0]], out[0, self.unread[1]] = 1, -1
        return Head("constant", *looks, value, out)

    def silent(self, looks: tuple[Tensor, Tensor]) -> Head:
        """Reads values into dimensions that its output does not use: W_V W_O is zero (Prop. 1)."""
        s = self.language.n_types
        value = torch.zeros(self.d_model + 1, 2 * s, dtype=torch.float64)
        out = torch.zeros(2 * s, self.d_model, dtype=torch.float64)
        value[: self.n_states, :s] = self._draw(self.n_states, s)
        written = self._draw(s, len(self.to.values))
        out[s:, self.to.values] = written
        out[s:, self.to.sink] = -written.sum(1)
        return Head("silent", *looks, value, out)

    # --- models -----------------------------------------------------------------------------------

    @torch.no_grad()
    def model(
        self,
        layers: Sequence[Sequence[Head]],
        works: int,
        *,
        reader: str = "linear",
        q: float = 0.5,
    ) -> DyckTransformer:
        """A model with these heads; every head's inner basis is turned at random.

        Args:
            layers: heads of each layer, as many in each.
            works: the layer whose MLP reads the stack.
            reader: "linear": the logit of a closing bracket grows with what its coordinate holds;
                "step": it knows zero from more only, and is flat elsewhere.
            q: probability of an opening bracket.
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
            d_mlp=2 * k * max(1, deepest - 1),
            n_ctx=self.n_ctx,
            ln_c=_LN_C,
            dtype=torch.float64,
            **shape,
        )
        for block, heads in zip(model.blocks, layers, strict=True):
            for index, head in enumerate(heads):
                self._write(block.attn, index, head, d_head)
        write_reader(model.blocks[works].mlp, self.states, self.to, reader)
        write_unembed(model, self.states, self.to.excluded, q, opening_knows_type=True)
        return model

    def _write(self, attn: Any, index: int, head: Head, d_head: int) -> None:
        looks, moves = (self._turn(d_head) for _ in range(2))
        r, s = head.key.shape[1], head.out.shape[0]
        query = head.query @ looks[:r] * attn.attn_scale
        attn.W_Q[index], attn.b_Q[index] = query[:-1], query[-1]
        attn.W_K[index] = head.key @ looks[:r]
        value = head.value @ moves[:s]
        attn.W_V[index], attn.b_V[index] = value[:-1], value[-1]
        attn.W_O[index] = moves[:s].T @ head.out

    def _turn(self, size: int) -> Tensor:
        """A random orthogonal matrix."""
        turned: Tensor = torch.linalg.qr(self._draw(size, size))[0]
        return turned


def write_reader(mlp: Any, states: States, to: StackCoordinates, reader: str) -> None:
    """Write the MLP that closes the top of the stack, after a closing bracket at depth d ≥ 1.

    The linear one has one unit for each type and depth d, relu(x − 2 (1 − gate)), which hands x on,
    an output of LN_C and so at most 1, where the last bracket closes at depth d: evidence for the
    type. The step knows x ≥ 3e-4 from x ≤ 1e-4 (as `parts.write_decoder`).
    """
    k, deepest = states.language.n_types, states.language.max_depth
    unit = 0
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
                unit = write_decoder(mlp, unit, read, gate, to.excluded[t], margin=4e-4)
