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
from tl_dyck.reading.inputs import looks_ahead
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
        place: of the symbol at which it answers, if it looks ahead; the last one if not given.

    Raises:
        UnsupportedModelError: its weights are no numbers of float32 or float64, or it cannot be
            run.
    """

    def __init__(self, model: Any, bos: int | None, place: int | None = None) -> None:
        self.model = self.model_or_rnn = model
        self.bos, self.ahead = bos, looks_ahead(model)
        self._at = -1 if place is None else place + (bos is not None)
        refuse_weights(model)
        self._device = next(iter(model.state_dict().values())).device
        try:
            first = self._run(torch.tensor([[bos or 0]]))
            self.dtype, self._width = first.dtype, first.shape[-1]
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
        logits: Array = self._run(self._read(strings))[:, self._at].double().cpu().numpy()
        return logits

    def everywhere(self, strings: Tokens, asked: Sequence[int] | None = None) -> Array:
        """After each token of strings of one length, without BOS: ``[n, pos, d_vocab]``.

        With a BOS the first is what is said before any symbol. Of a model that looks ahead, the
        beginnings of `asked` symbols are read by themselves; of others nothing is known, NaN.
        """
        if self.ahead:
            first, length = int(self.bos is None), strings.shape[1]
            some = [n for n in range(first, length + 1) if asked is None or n in asked]
            each = {n: self.batch(strings[:, :n]) for n in some}
            nothing = np.full((len(strings), self._width), np.nan)
            return np.stack([each.get(n, nothing) for n in range(first, length + 1)], axis=1)
        logits: Array = self._run(self._read(strings)).double().cpu().numpy()
        return logits

    def after(self, strings: Sequence[tuple[int, ...]]) -> list[Array]:
        """After strings of any lengths, each ``[d_vocab]``; a causal model reads no filling."""
        if self.ahead:
            return [self.batch(np.array([string], dtype=np.int64))[0] for string in strings]
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
