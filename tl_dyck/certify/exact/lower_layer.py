"""A layer without positions below another one: what it hands on depends on a profile.

Attention without positions is a mean over the symbols read so far, so that the first of two layers
hands on, at each token, a function of that token and of how often each symbol has occurred. To
the second layer, token and *profile* (these numbers) are a symbol, as token and state are to a
single layer: the state machine of the RNN's first layer carries the profile, and everything else
stays as it is. A second layer's attention is a sum over the profiles on the way, so that strings of
one final profile, whose query is the same, are the paths of a graph.

Knows: how profiles are numbered, and what a first layer makes of one.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.certify.exact.balls import Ball, IntArray
from tl_dyck.certify.exact.network import Network


@final
class Below:
    """The layer below a network, as a state machine that carries profiles.

    States are numbers of profiles, in the order in which they were met.

    Args:
        network: the layer, without positions; its logits are the residual stream behind it.
    """

    def __init__(self, network: Network) -> None:
        if network.config.has_position:
            raise ValueError(f"{network.config.model_name}: a layer with positions has no profiles")
        self.network = network
        # state 0 is the profile of no symbols, `_profiles[0]`
        self.start_state = 0
        self._symbols: dict[tuple[int, int], int] = {}  # of (token, state of the RNN)
        self._profiles: list[tuple[int, tuple[int, ...]]] = [(network.rnn.start_state, ())]
        self._numbers = {self._profiles[0]: 0}
        self._after: dict[tuple[int, int], int] = {}

    def next_state(
        self, state: Int[Tensor, "*batch"] | int, token: Int[Tensor, "*batch"] | int
    ) -> Int[Tensor, "*batch"]:
        """The profile after one more token."""
        before, tokens = np.broadcast_arrays(np.asarray(state), np.asarray(token))
        pairs = np.stack([before.ravel(), tokens.ravel()], axis=1)
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        after = np.array([self._step(*pair) for pair in distinct.tolist()], dtype=np.int64)
        return torch.from_numpy(after[which.ravel()].reshape(before.shape))

    def states(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """The profile after each token of whole strings."""
        found = torch.zeros_like(tokens)
        # 0 is the start state; of empty strings there is no first column, and nothing to go through
        state = torch.zeros_like(tokens[..., 0]) if tokens.shape[-1] else tokens
        for position in range(tokens.shape[-1]):
            state = self.next_state(state, tokens[..., position])
            found[..., position] = state
        return found

    def residual(self, tokens: IntArray, states: IntArray) -> Ball:
        """What the layer hands on at tokens that end these profiles, [S, d_model]."""
        symbols = np.array(list(self._symbols), dtype=np.int64).reshape(-1, 2)
        table = self.network.symbols(*np.ascontiguousarray(symbols.T))
        rows = np.zeros((len(states), len(symbols)))
        last = np.empty((len(states), 1), dtype=np.int64)
        for row, (token, state) in enumerate(zip(tokens.tolist(), states.tolist(), strict=True)):
            carried, counts = self._profiles[state]
            # a profile is as long as the symbols known when it was met: later ones it has not
            rows[row, : len(counts)] = counts
            last[row] = self._symbols[token, carried]
        # the last symbol has an entry of its own, which `attend` takes the query from
        np.put_along_axis(rows, last, np.take_along_axis(rows, last, 1) - 1, 1)
        every = np.broadcast_to(np.arange(len(symbols)), rows.shape)
        # the last symbol is read once, in a column behind all others, where `attend` looks for it
        times = np.concatenate([rows, np.ones_like(last)], axis=1)
        z = self.network.attend(table, np.concatenate([every, last], axis=1), times)
        return self.network.readout(table.r.at(last[:, 0]), z)

    def _step(self, state: int, token: int) -> int:
        if (state, token) not in self._after:
            carried, counts = self._profiles[state]
            moved = int(self.network.rnn.next_state(carried, token))
            symbol = self._symbols.setdefault((token, moved), len(self._symbols))
            # as long as the symbol's number asks for; equal profiles stay equal tuples, since a
            # profile ends with a count above 0
            more = [*counts, *[0] * (symbol + 1 - len(counts))]
            more[symbol] += 1
            profile = moved, tuple(more)
            if profile not in self._numbers:
                self._numbers[profile] = len(self._profiles)
                self._profiles.append(profile)
            self._after[state, token] = self._numbers[profile]
        return self._after[state, token]
