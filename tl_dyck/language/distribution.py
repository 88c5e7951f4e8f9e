"""The distribution D(q, k, D) over strings of a bounded Dyck language, and its exact facts (spec §1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from tl_dyck.language.dyck import DyckLanguage, check_mode
from tl_dyck.language.sampling import depth_walks, free_open_probability, log_completion, open_probability

__all__ = ["DyckDistribution"]


@final
@dataclass(frozen=True)
class DyckDistribution:
    """D(q, k, D)."""

    language: DyckLanguage
    q: float = 0.5

    def sample(
        self,
        n: int,
        length: int,
        *,
        mode: str = "complete",
        generator: torch.Generator | None = None,
        device: str | torch.device = "cpu",
    ) -> Int[Tensor, "n length"]:
        """Draw strings of a given length."""
        return self._draw(n, length, mode, generator, device, end_in_close=False)

    def sample_ending_in_close(
        self,
        n: int,
        length: int,
        *,
        mode: str = "complete",
        generator: torch.Generator | None = None,
        device: str | torch.device = "cpu",
    ) -> Int[Tensor, "n length"]:
        """Draw strings of a given length whose last token is a close."""
        return self._draw(n, length, mode, generator, device, end_in_close=True)

    def _draw(self, n, length, mode, generator, device, end_in_close):
        check_mode(mode)
        if mode == "complete" and length % 2:
            raise ValueError(f"complete strings have even length, got {length}")
        device = torch.device(device)
        D = self.language.max_depth
        deepest = min(D, length)
        if mode == "complete":
            table = open_probability(self.q, D, length)[length:0:-1]
        elif end_in_close:
            free = free_open_probability(self.q, D, deepest)
            B = np.zeros((length + 1, deepest + 3))
            with np.errstate(divide="ignore"):
                B = np.full((length + 1, deepest + 3), -np.inf)
                B[0, 1:-1] = 0
                for r in range(1, length + 1):
                    up = np.log(free) + B[r - 1, 2:] if r > 1 else -np.inf
                    B[r, 1:-1] = np.logaddexp(up, np.log1p(-free) + B[r - 1, :-2])
                if length == 0 or not np.isfinite(B[length, 1]):
                    raise ValueError(f"no prefix of length {length} ends in a close")
                ok = np.isfinite(B[1:, 1:-1])
                t = np.zeros((length, deepest + 1))
                t[ok] = np.exp((np.log(free) + B[:-1, 2:])[ok] - B[1:, 1:-1][ok])
                t[0] = 0
                table = t[::-1].copy()
        else:
            table = np.broadcast_to(free_open_probability(self.q, D, deepest), (length, deepest + 1))
        opens = depth_walks(
            torch.from_numpy(np.ascontiguousarray(table)).to(device), n, length, generator, device
        )
        return self._assign_types(opens.T, generator)

    def _assign_types(self, opens, generator):
        k = self.language.n_types
        types = torch.randint(k, opens.shape, generator=generator, device=opens.device)
        step = 2 * opens.long() - 1
        level = step.cumsum(1) + ~opens
        level, order = level.sort(dim=1, stable=True)
        opens_sorted = opens.gather(1, order)
        pair = (opens_sorted.long().cumsum(1) - 1).clamp(min=0)
        return torch.empty_like(order).scatter_(1, order, types.gather(1, pair) * 2 + ~opens_sorted)
