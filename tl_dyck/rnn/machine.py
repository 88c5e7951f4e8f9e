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
in the order of sums. Whatever makes a key depend on the *query's* position (rotary or relative
positions) breaks fact 1, a second layer breaks it too, bidirectional attention breaks fact 2.

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
from typing import TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_DRAWS, check_integer
from tl_dyck.language.checks import DyckStringError
from tl_dyck.language.depth import clip_depth, depth_steps
from tl_dyck.language.symbols import token_ends
from tl_dyck.reading.activations import ACTIVATIONS, unit_norm
from tl_dyck.rnn.attention import (
    Accumulator,
    QueryCarry,
    absorb,
    attend_causal,
    attend_last,
    empty_accumulator,
)
from tl_dyck.rnn.config import RNNConfig, RNNInputError, check_weights, weight_shapes

T = TypeVar("T", int, Tensor)


@final
@checked
class TwoLayerRNN(torch.nn.Module):
    """A one-layer causal transformer as a two-layer RNN; see the module's docstring for how.

    Args:
        config: everything that is not a weight.
        weights: exactly the tensors that `weight_shapes(config)` names, finite, all float32 or all
            float64. They are copied, become buffers (never trained), and follow `.to(...)`.

    Raises:
        RNNWeightError: a missing, unknown, misshapen or non-finite weight, or mixed types.
    """

    config: RNNConfig
    W_E: Tensor
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

    @property
    def device(self) -> torch.device:
        """The device on which the weights are."""
        return self.W_E.device

    @property
    def start_state(self) -> int:
        """Layer 1's state before the first token."""
        # a state is that *after* a token, and the first token stands at position 0: before it, −1
        if self.config.state == "position":
            return -1
        # nothing is open yet; where nothing is counted there is one state, which is called 0
        return self._pack(-1, 0) if self.config.state == "position+depth" else 0

    @checked
    def next_state(
        self, state: Int[Tensor, "*batch"] | int, token: Int[Tensor, "*batch"] | int
    ) -> Int[Tensor, "*batch"]:
        """One step of layer 1: the state after `token`, given the state before it.

        States are integers that callers treat as opaque: compare them, store them, hand them to
        `embed`.
        """
        state = torch.as_tensor(state, device=self.device)
        token = torch.as_tensor(token, device=self.device)
        self._check_tokens(token)
        if self.config.state == "none":
            return torch.zeros_like(token)
        if self.config.state == "position":
            return state + 1
        if self.config.state == "depth":
            return state + self._depth_change(token)
        # one position on: the offset of a packed depth is in both, so it cancels
        return state + self._pack(1, 0) - self._pack(0, 0) + self._depth_change(token)

    @checked
    def states(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """Layer 1 over whole strings: the state after each token.

        Raises:
            RNNInputError: a token outside the vocabulary, or a string longer than the model has
                positions.
        """
        self._check_tokens(tokens)
        length = tokens.shape[-1]
        positions = torch.arange(length, device=tokens.device).expand(tokens.shape)
        if self.config.has_position and length > self.config.n_ctx:
            raise RNNInputError(
                f"a string of {length} tokens, "
                f"but the model has {self.config.n_ctx} positions (n_ctx); shorten it."
            )
        if self.config.state == "none":
            return torch.zeros_like(tokens)
        if self.config.state == "position":
            return positions.to(tokens.dtype)
        depths = self._depth_change(tokens).cumsum(-1)
        return depths if self.config.state == "depth" else self._pack(positions, depths)

    @checked
    def embed(
        self, tokens: Int[Tensor, "*batch"], states: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d_model"]:
        """r_i, the residual stream before the block, from a token and the state after it."""
        self._check_tokens(tokens)
        if self.config.state == "none":
            return self.W_E[tokens]
        if self.config.state == "position":
            return self.W_E[tokens] + self.W_pos[states]
        if self.config.state == "depth":
            return self.W_E[tokens, self._clip(tokens, states)]
        positions, depths = self._unpack(states)
        return self.W_E[tokens, self._clip(tokens, depths)] + self.W_pos[positions]

    @checked
    def query(self, r: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch head d_head"]:
        """Query of each head, already divided by the model's attn_scale: a score is q · k."""
        return self._project(r, self.W_Q, self.b_Q) / self.config.attn_scale

    @checked
    def key(self, r: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch head d_head"]:
        """Key of each head."""
        return self._project(r, self.W_K, self.b_K)

    @checked
    def value(self, r: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch head d_head"]:
        """Value of each head."""
        return self._project(r, self.W_V, self.b_V)

    @checked
    def readout(
        self, r: Float[Tensor, "*batch d_model"], z: Float[Tensor, "*batch head d_head"]
    ) -> Float[Tensor, "*batch d_vocab_out"]:
        """Logits from r_L and the attention's output z^h = N^h / Z^h.

        a = Σ_h z^h W_O^h + b_O;  a ← LN_C(a) (Eq. 6);  m = r + a, or a alone;
        m ← LN_C(m) (Eq. 49);  m ← m + MLP(ln2(m));  logits = ln_final(m) W_U + b_U.
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
            pre = self._norm("ln2", resid) @ self.W_in + self.b_in
            resid = resid + (ACTIVATIONS[self.config.act_fn](pre) @ self.W_out + self.b_out)
        return self._norm("ln_final", resid) @ self.W_U + self.b_U

    @checked
    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits at every position.

        Without positions the machine also reads strings beyond the model's n_ctx.

        Raises:
            RNNInputError: see `states`; or an empty string.
        """
        tokens = self._checked(tokens)
        r = self.embed(tokens, self.states(tokens))
        z = attend_causal(self.query(r), self.key(r), self.value(r))
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
        r = self.embed(tokens, self.states(tokens))
        last = r[:, -1] if lengths is None else r[torch.arange(len(r)).to(lengths), lengths - 1]
        z = attend_last(self.query(last), self.key(r), self.value(r), lengths)
        return self.readout(last, z)

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

    def _project(self, r: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        self._check_width("r", r, self.config.d_model)
        return torch.einsum("...d,hde->...he", self._norm("ln1", r), weight) + bias

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

    def _depth_change(self, tokens: Tensor) -> Tensor:
        assert self.config.n_types is not None
        return depth_steps(tokens, self.config.n_types)

    def _clip(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """The depth that indexes the embedding."""
        assert self.config.n_types is not None
        assert self.config.max_depth is not None
        return clip_depth(tokens, depths, self.config.n_types, self.config.max_depth)

    def _query_index(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Row of `QueryCarry.queries` that belongs to a token and the state after it."""
        if self.config.max_depth is None:
            return tokens
        return tokens * (self.config.max_depth + 1) + self._clip(tokens, states)

    # Position and depth in one integer: depth lies within ±n_ctx on every string the model accepts.
    # a digit of 2 n_ctx + 1 values, shifted so that none is negative
    def _pack(self, position: T, depth: T) -> T:
        return position * (2 * self.config.n_ctx + 1) + depth + self.config.n_ctx

    def _unpack(self, states: Tensor) -> tuple[Tensor, Tensor]:
        width = 2 * self.config.n_ctx + 1
        return states.div(width, rounding_mode="floor"), states % width - self.config.n_ctx

    def _check_width(self, name: str, given: Tensor, width: int) -> None:
        if given.shape[-1] != width:
            raise RNNInputError(f"{name} must be [..., {width}], got {list(given.shape)}.")

    def _check_tokens(self, tokens: Tensor) -> None:
        ends = token_ends(tokens)
        if ends is not None and (ends[0] < 0 or ends[1] >= self.config.d_vocab):
            wrong = (tokens < 0) | (tokens >= self.config.d_vocab)
            raise RNNInputError(
                f"token {int(tokens[wrong][0])} is not in the vocabulary "
                f"0..{self.config.d_vocab - 1}."
            )

    def _checked(self, tokens: Tensor) -> Tensor:
        """The tokens, on the weights' device, as `HookedTransformer` moves its input too."""
        if tokens.shape[-1] == 0:
            raise RNNInputError("an empty string has no logits; give at least one token (BOS).")
        return tokens.to(self.device)
