"""Probes: what attention looks like, how much it varies, and whether it is balanced."""

from tl_dyck_hooks.probes.accuracy_at_length import AccuracyAtLength, accuracy_at_length
from tl_dyck_hooks.probes.attention_variation import (
    AttentionVariation,
    attention_variation,
    variation_of_patterns,
)
from tl_dyck_hooks.probes.balance_violation import BalanceViolation, balance_violation
from tl_dyck_hooks.probes.pair_drift import PairDrift, pair_drift
from tl_dyck_hooks.probes.stack_likeness import StackLikeness, stack_likeness

__all__ = [
    "AccuracyAtLength",
    "AttentionVariation",
    "BalanceViolation",
    "PairDrift",
    "StackLikeness",
    "accuracy_at_length",
    "attention_variation",
    "balance_violation",
    "pair_drift",
    "stack_likeness",
    "variation_of_patterns",
]
