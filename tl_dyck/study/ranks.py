"""Rank correlation, for one sample and for many resamples at once."""

from __future__ import annotations

import numpy as np
from scipy import stats

__all__ = ["spearman"]


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation along the last axis; 0 where one of the two does not vary."""
    ranks = stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1)
    a, b = (rank - rank.mean(-1, keepdims=True) for rank in ranks)
    norm = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    rho: np.ndarray = np.divide((a * b).sum(-1), norm, out=np.zeros(norm.shape), where=norm > 0)
    return rho
