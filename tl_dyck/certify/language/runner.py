"""A model that is run on whole strings, as it is.

Knows: which token comes first, and in which precision the model computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import Array
from tl_dyck.rnn import UnsupportedModelError
from tl_dyck.rnn.unsupported import refuse_weights

Tokens = NDArray[np.int64]

_AT_ONCE = 32
"""Strings that are run side by side with all their prefixes."""


@final
class Runner:
    """A model that is run, never looked into.

    Args:
        model: maps tokens ``[batch, pos]``, BOS first, to logits ``[batch, pos, d_vocab]``.
        bos: its first token; None if it starts bare.

    Raises:
        UnsupportedModelError: its weights are no numbers of float32 or float64, or it cannot be
            run.
    """

    def __init__(self, model: Any, bos: int | None) -> None:
        self.model = self.model_or_rnn = model
        self.bos = bos
        refuse_weights(model)
        self._device = next(iter(model.state_dict().values())).device
        try:
            self.dtype = self._run(torch.tensor([[bos or 0]])).dtype
        except RuntimeError as error:
            line = (str(error).splitlines() or ["it fails"])[0]
            raise UnsupportedModelError(
                f"{type(model).__name__}: the model cannot be run on its start token ({line}); "
                "if it was cast, cast it by model.to(torch.float32) or model.to(torch.float64)."
            ) from error

    def logits(self, string: tuple[int, ...]) -> list[float]:
        """After a string without BOS."""
        found: list[float] = self.batch(np.array([string], dtype=np.int64))[0].tolist()
        return found

    def batch(self, strings: Tokens) -> Array:
        """After strings of one length, without BOS: ``[n, d_vocab]``."""
        logits: Array = self._run(self._read(strings))[:, -1].double().cpu().numpy()
        return logits

    def everywhere(self, strings: Tokens) -> Array:
        """After each token of strings of one length, without BOS: ``[n, pos, d_vocab]``.

        With a BOS the first is what is said before any symbol.
        """
        logits: Array = self._run(self._read(strings)).double().cpu().numpy()
        return logits

    def after(self, strings: Sequence[tuple[int, ...]]) -> list[Array]:
        """After strings of any lengths, each ``[d_vocab]``; a causal model reads no filling."""
        found: list[Array] = []
        for start in range(0, len(strings), _AT_ONCE):
            some = strings[start : start + _AT_ONCE]
            longest = max(map(len, some))
            filled = [(*string, *(0,) * (longest - len(string))) for string in some]
            logits = self.everywhere(np.array(filled, dtype=np.int64).reshape(len(some), longest))
            # without BOS row 0 is what is said after the first symbol
            before = 1 if self.bos is None else 0
            rows = zip(some, logits, strict=True)
            found += [row[len(string) - before] for string, row in rows]
        return found

    def _read(self, strings: Tokens) -> torch.Tensor:
        tokens = strings if self.bos is None else np.insert(strings, 0, self.bos, axis=1)
        return torch.from_numpy(tokens)

    @torch.no_grad()
    def _run(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(tokens.to(self._device))
        return logits
