"""A one-layer causal transformer, run as a two-layer RNN (torch only, no TransformerLens).

The equivalence (Zhang, Albarghouthi & D'Antoni, arXiv 2405.17361, "ARC-Tran"; in our own words)
------------------------------------------------------------------------------------------------
A one-layer decoder reads x_1 … x_L (x_1 is BOS if it has one) and, at position L, computes

    z^h = Σ_{i≤L} softmax_i(a^h_i) v^h_i,   a^h_i = q^h_L · k^h_i / scale,
    logits = readout(r_L, z^1, …, z^H).

Three facts make it a recurrent network:

1. *One layer*: k_i and v_i are functions of the embedding r_i alone, and r_i of the token x_i and
   of what is counted along the string (a position, a bracket depth, nothing). No key or value has
   looked at another token.
2. *Causality*: position L sees exactly the tokens read before it, the past of an RNN.
3. *Softmax attention is a ratio of two sums* over those tokens, and a sum is a recurrence.

So the transformer equals, at every position, the network

- **RNN layer 1**, a state machine over tokens: s_i = `next_state`(s_{i-1}, x_i); it emits
  r_i = `embed`(x_i, s_i), hence `key`(r_i), `value`(r_i) and, at the position that is read out,
  `query`(r_i).
- **RNN layer 2**, for a query q: Z += exp(q · k_i), N += exp(q · k_i) v_i for each head, kept as a
  running maximum and scaled sums so that it never overflows (`tl_dyck.rnn.attention`).
- **Readout**: `readout`(r_L, N^1/Z^1, …, N^H/Z^H): W_O, residual, norms, MLP, unembedding, as the
  model has them.

The equality is exact in real arithmetic: nothing is approximated, and floating point differs only
in the order of sums. Positions of any scheme keep fact 1 (`tl_dyck.rnn.scores`): rotary ones turn a
query by its own position and a key by its own. A second layer breaks it, bidirectional attention
breaks fact 2.

Over a stream (`initial`, `step`) layer 2's recurrence needs the query, and the query comes last.

- Without positions the set of queries is finite (token, or token × depth), so layer 2 runs for
  *all* of them side by side, and memory does not depend on the length.
- With positions the query is known once the last token is: the length and last token are fixed
  first, and one pass in constant memory suffices (`last_logits` is that pass; the certifiers build
  on it).

Notation differs from the paper's in that vectors are rows, as in TransformerLens: weights multiply
on the right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_DRAWS, check_integer
from tl_dyck.language.checks import DyckStringError
from tl_dyck.reading.activations import ACTIVATIONS
from tl_dyck.reading.norms import unit_norm
from tl_dyck.reading.positions import POSITIONS
from tl_dyck.rnn.attention import (
    Accumulator,
    QueryCarry,
    absorb,
    attend_causal,
    attend_last,
    attend_scored,
    empty_accumulator,
)
from tl_dyck.rnn.config import RNNConfig, RNNInputError, check_weights, weight_shapes
from tl_dyck.rnn.scores import OfTensors, adjusted, projected
from tl_dyck.rnn.states import StateMachine


@final
@checked
class TwoLayerRNN(StateMachine):
    """A one-layer causal transformer as a two-layer RNN; see the module's docstring for how.

    Args:
        config: everything that is not a weight.
        weights: exactly the tensors that `weight_shapes(config)` names, finite, all float32 or all
            float64. They are copied, become buffers (never trained), and follow `.to(...)`.

    Raises:
        RNNWeightError: a missing, unknown, misshapen or non-finite weight, or mixed types.
    """

    W_pos: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor
    b_K: Tensor
    b_V: Tensor
    b_O: Tensor
    W_in: Tensor
    b_in: Tensor
    W_out: Tensor
    b_out: Tensor
    W_gate: Tensor
    b_gate: Tensor
    b_post: Tensor
    W_near: Tensor
    W_U: Tensor
    b_U: Tensor

    def __init__(self, config: RNNConfig, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        check_weights(config, weights)
        self.config = config
        for name in weight_shapes(config):
            self.register_buffer(name, weights[name].detach().clone().contiguous())
        self.eval()

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights by name (views, not copies)."""
        return {name: getattr(self, name) for name in weight_shapes(self.config)}

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""
        return self.W_E.dtype

    @checked
    def embed(
        self, tokens: Int[Tensor, "*batch"], states: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d_model"]:
        """r_i, the residual stream before the block, from a token and the state after it."""
        self._check_tokens(tokens)
        where, table = self.places(states), self.W_E[tokens]
        if self.config.has_depth:
            depths = states if where is None else self._unpack(states)[1]
            table = self.W_E[tokens, self._clip(tokens, depths)]
        added = POSITIONS[self.config.positions].in_stream
        return table if where is None or not added else table + self.W_pos[where]

    @checked
    def query(
        self, r: Float[Tensor, "*batch d_model"], states: Int[Tensor, "*batch"] | None = None
    ) -> Float[Tensor, "*batch head d_head"]:
        """Query of each head, already divided by the model's attn_scale: a score is q · k.

        Args:
            r: what `embed` made of a token and the state after it.
            states: those states; of positions that are only added to the embedding they may be left
                out.
        """
        return self._projected("Q", r, states) / self.config.attn_scale

    @checked
    def key(
        self, r: Float[Tensor, "*batch d_model"], states: Int[Tensor, "*batch"] | None = None
    ) -> Float[Tensor, "*batch head d_head"]:
        """Key of each head; arguments as for `query`."""
        return self._projected("K", r, states)

    @checked
    def scores(
        self, r: Float[Tensor, "batch pos d_model"], states: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch head pos pos"]:
        """The score of each position's query (third axis) for each key, before the causal mask."""
        # scores [batch, head, query, key]
        raw = torch.einsum("bqhe,bkhe->bhqk", self.query(r, states), self.key(r, states))
        # [batch, query, 1] and [batch, 1, key]
        return self._adjusted(raw, states[..., :, None], states[..., None, :])

    @checked
    def value(self, r: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch head d_head"]:
        """Value of each head."""
        self._check_width("r", r, self.config.d_model)
        return OfTensors(self).heads(self._norm("ln1", r), "V")

    @checked
    def readout(
        self, r: Float[Tensor, "*batch d_model"], z: Float[Tensor, "*batch head d_head"]
    ) -> Float[Tensor, "*batch d_vocab_out"]:
        """Logits from r_L and the attention's output z^h = N^h / Z^h.

        a = Σ_h z^h W_O^h + b_O;  a ← LN_C(a) (Eq. 6);  m = r + a, or a alone;
        m ← LN_C(m) (Eq. 49);  m ← m + MLP(ln2(m)), or in a parallel block m + MLP(ln2(r));
        logits = ln_final(m) W_U + b_U.
        Steps the model does not have are left out.
        """
        self._check_width("r", r, self.config.d_model)
        self._check_width("z", z, self.config.d_head)
        attn_out = torch.einsum("...he,hed->...d", z, self.W_O) + self.b_O
        if self.config.ln_c is not None:
            attn_out = unit_norm(attn_out, self.config.ln_c)
        resid = r + attn_out if self.config.residual else attn_out
        if self.config.ln_mid is not None:
            resid = unit_norm(resid, self.config.ln_mid)
        if self.config.act_fn is not None:
            read = r if self.config.parallel else resid
            normed, act = self._norm("ln2", read), ACTIVATIONS[self.config.act_fn]
            pre = normed @ self.W_in + self.b_in
            if self.config.gated:
                hidden = act(normed @ self.W_gate + self.b_gate) * pre + self.b_post
            else:
                hidden = act(pre)
            resid = resid + (hidden @ self.W_out + self.b_out)
        logits = self._norm("ln_final", resid) @ self.W_U + self.b_U
        cap = self.config.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    @checked
    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits at every position.

        Without positions the machine also reads strings beyond the model's n_ctx.

        Raises:
            RNNInputError: see `states`; or an empty string.
        """
        tokens = self._checked(tokens)
        states = self.states(tokens)
        r = self.embed(tokens, states)
        if self._scores_are_products:
            z = attend_causal(self.query(r, states), self.key(r, states), self.value(r))
        else:
            seen = torch.ones(r.shape[1], r.shape[1], dtype=torch.bool, device=r.device).tril()
            scores = self.scores(r, states).masked_fill(~seen, -torch.inf)
            z = attend_scored(scores, self.value(r))
        return self.readout(r, z)

    @checked
    def last_logits(
        self, tokens: Int[Tensor, "batch pos"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch d_vocab_out"]:
        """Logits at the last position only, in time and memory linear in the length.

        This is the form with a fixed query: length and last token are known, so layer 2 runs once.

        Args:
            tokens: strings, padded on the right with any token if their lengths differ.
            lengths: number of tokens of each string, at least 1; all of them if not given.
        """
        tokens = self._checked(tokens)
        if lengths is not None:
            if not bool(((lengths >= 1) & (lengths <= tokens.shape[1])).all()):
                raise RNNInputError(
                    f"lengths must be in 1..{tokens.shape[1]}, not {lengths.tolist()}."
                )
            lengths = lengths.to(self.device)
        states = self.states(tokens)
        r = self.embed(tokens, states)
        # (string, its last token)
        at = torch.arange(len(r)), (-1 if lengths is None else lengths - 1)
        last, end = r[at], states[at]
        raw = torch.einsum("bhe,bkhe->bhk", self.query(last, end), self.key(r, states))
        # [batch, head, key]: one query a string
        scores = self._adjusted(raw, end[:, None], states)
        return self.readout(last, attend_last(scores, self.value(r), lengths))

    @checked
    def initial(self, batch: int = 1) -> QueryCarry:
        """The carry before the first token, for `batch` strings that are read side by side.

        Its size is batch * queries * head * (d_head + 2), whatever the length; queries are the
        d_vocab tokens (times max_depth + 1 depths).

        Raises:
            RNNInputError: the model has positions, so queries are not known before the last token.
        """
        if self.config.has_position:
            raise RNNInputError(
                "a model with positions is not read token by token, for its queries are not known "
                "before the last; give whole strings."
            )
        batch = check_integer("batch", batch, least=0, most=MOST_DRAWS)
        state = torch.full((batch,), self.start_state, device=self.device)
        # every row of the embedding is a query: [token] or [token, depth], as `_query_index` counts
        queries = self.query(self.W_E.reshape(-1, self.config.d_model))
        shape = (batch, len(queries), self.config.n_heads)
        sums = empty_accumulator(shape, self.config.d_head, dtype=self.dtype, device=self.device)
        return QueryCarry(state, queries, sums)

    @checked
    def step(
        self, carry: QueryCarry, token: Int[Tensor, " batch"]
    ) -> tuple[QueryCarry, Float[Tensor, "batch d_vocab_out"]]:
        """Read one token of each string: the new carry, and the logits at this position.

        The old carry stays valid, so that one prefix can be continued in several ways.

        Raises:
            RNNInputError: a token outside the vocabulary.
        """
        token = token.to(self.device)
        self._check_tokens(token)
        state = self.next_state(carry.state, token)
        r = self.embed(token, state)
        scores = torch.einsum("qhe,bhe->bqh", carry.queries, self.key(r))
        scores = self._adjusted(scores, state, state)  # without positions: nothing is by distance
        sums = absorb(carry.sums, scores, self.value(r)[:, None])
        # sums were kept for every query; the token that was read says which one is asked
        place = torch.arange(len(token), device=r.device), self._query_index(token, state)
        own = Accumulator(*(each[place] for each in sums))
        return QueryCarry(state, carry.queries, sums), self.readout(r, own.output())

    @checked
    def to_tokens(self, text: str, *, prepend_bos: bool = True) -> Int[Tensor, "1 pos"]:
        """Tokens of a text, with BOS if the model starts strings with one; see `RNNConfig.read`."""
        tokens = self.config.read(text, prepend_bos=prepend_bos)
        return torch.tensor([tokens], device=self.device)

    @checked
    def to_str_tokens(self, tokens: Int[Tensor, " pos"]) -> list[str]:
        """The text of each token."""
        alphabet = self.config.alphabet
        if alphabet is None:
            raise DyckStringError("this RNN has no alphabet; export it with alphabet=….")
        for token in tokens.tolist():
            if not 0 <= token < len(alphabet):
                raise DyckStringError(f"token {token} is not one of 0..{len(alphabet) - 1}.")
        return [alphabet[token] for token in tokens.tolist()]

    @checked
    def to_string(self, tokens: Int[Tensor, " pos"]) -> str:
        """The text of a string of tokens, BOS dropped."""
        self.to_str_tokens(tokens)
        return self.config.symbols.text(tokens.tolist())

    @property
    def _scores_are_products(self) -> bool:
        by_distance = POSITIONS[self.config.positions].by_distance
        return self.config.score_cap is None and not by_distance

    def _projected(self, name: str, r: Tensor, states: Tensor | None) -> Tensor:
        self._check_width("r", r, self.config.d_model)
        scheme = POSITIONS[self.config.positions]
        if states is None and (scheme.turns or scheme.in_attended):
            raise RNNInputError(f"of {scheme.name} positions, queries and keys need the states too")
        where = None if states is None else self.places(states)
        return projected(OfTensors(self), self.config, name, self._norm("ln1", r), where)

    def _adjusted(self, scores: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores of q · k, given the states of queries and keys, [batch, query, key] without heads.

        Heads stand before these axes of the scores.
        """

        def near() -> Tensor:
            ahead, behind = self.places(queries), self.places(keys)
            assert ahead is not None
            assert behind is not None
            rows = self.W_near[(ahead - behind).clamp_min(0)]  # later keys are masked
            return rows.movedim(-1, 1)

        found: Tensor = adjusted(self.config, scores, torch.tanh, near)
        return found

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """ln1, ln2 or ln_final as TransformerLens has it: (x - mean) / sqrt(var + eps), w and b."""
        kind = getattr(self.config, name)
        if kind is None:
            return x
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.pow(2).mean(-1, keepdim=True) + self.config.eps).sqrt()
        if kind == "lnpre":
            return x
        scaled: Tensor = x * getattr(self, f"{name}_w") + getattr(self, f"{name}_b")
        return scaled

    def _query_index(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Row of `QueryCarry.queries` that belongs to a token and the state after it."""
        if self.config.max_depth is None:
            return tokens
        # W_E is [token, depth 0..D, d_model], flattened to rows
        return tokens * (self.config.max_depth + 1) + self._clip(tokens, states)

    def _check_width(self, name: str, given: Tensor, width: int) -> None:
        if given.shape[-1] != width:
            raise RNNInputError(f"{name} must be [..., {width}], got {list(given.shape)}.")

    def _checked(self, tokens: Tensor) -> Tensor:
        """The tokens, on the weights' device, as `HookedTransformer` moves its input too."""
        if tokens.shape[-1] == 0:
            raise RNNInputError("an empty string has no logits; give at least one token (BOS).")
        return tokens.to(self.device)
