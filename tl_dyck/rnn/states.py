"""Layer 1 of the RNN: a state machine over tokens, which counts positions, depths, both or nothing.

States are integers, opaque to whoever only stores and compares them.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.language.depth import clip_depth, depth_steps
from tl_dyck.language.symbols import token_ends
from tl_dyck.rnn.config import RNNConfig, RNNInputError

T = TypeVar("T", int, Tensor)


class StateMachine(torch.nn.Module):
    """What counts, and where it stands; `TwoLayerRNN` has the weights."""

    config: RNNConfig
    W_E: Tensor

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
        # not cut off at 0 and D: only `embed` clips, as the model does
        depths = self._depth_change(tokens).cumsum(-1)
        return depths if self.config.state == "depth" else self._pack(positions, depths)

    @checked
    def places(self, states: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"] | None:
        """The position in each state; None if it counts none."""
        if not self.config.has_position:
            return None
        return states if self.config.state == "position" else self._unpack(states)[0]

    def _depth_change(self, tokens: Tensor) -> Tensor:
        assert self.config.n_types is not None
        return depth_steps(tokens, self.config.n_types)

    def _clip(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """The depth that indexes the embedding."""
        assert self.config.n_types is not None
        assert self.config.max_depth is not None
        return clip_depth(tokens, depths, self.config.n_types, self.config.max_depth)

    # Position and depth in one integer: depth lies within ±n_ctx on every string the model accepts.
    # a digit of 2 n_ctx + 1 values, shifted so that none is negative
    def _pack(self, position: T, depth: T) -> T:
        return position * (2 * self.config.n_ctx + 1) + depth + self.config.n_ctx

    def _unpack(self, states: Tensor) -> tuple[Tensor, Tensor]:
        width = 2 * self.config.n_ctx + 1
        return states.div(width, rounding_mode="floor"), states % width - self.config.n_ctx

    def _check_tokens(self, tokens: Tensor) -> None:
        ends = token_ends(tokens)
        if ends is not None and (ends[0] < 0 or ends[1] >= self.config.d_vocab):
            wrong = (tokens < 0) | (tokens >= self.config.d_vocab)
            raise RNNInputError(
                f"token {int(tokens[wrong][0])} is not in the vocabulary "
                f"0..{self.config.d_vocab - 1}."
            )
