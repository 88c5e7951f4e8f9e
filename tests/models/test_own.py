"""The class for TransformerLens 4 against TransformerLens 3's own, bit for bit."""

from __future__ import annotations
