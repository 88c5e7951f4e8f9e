"""Bounded Dyck languages: strings, the distribution over them and its exact facts, the tokenizer."""

from tl_dyck.language.distribution import DyckDistribution
from tl_dyck.language.dyck import DyckLanguage, DyckStringError
from tl_dyck.language.tokenizer import build_tokenizer

__all__ = ["DyckDistribution", "DyckLanguage", "DyckStringError", "build_tokenizer"]
