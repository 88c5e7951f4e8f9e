"""Bounded Dyck languages: strings, distributions and exact facts about them, the tokenizer.

Knows: brackets and their depth, the law of strings, tokens.
Does not know: models and tasks (`tl_dyck.models`, `tl_dyck.tasks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tl_dyck.language.checks import DyckStringError
from tl_dyck.language.distribution import DyckDistribution
from tl_dyck.language.dyck import DyckLanguage
from tl_dyck.language.strings import StringList, read_strings
from tl_dyck.language.symbols import Language, NoStackError, SymbolLanguage
from tl_dyck.language.vocabulary import Vocabulary, VocabularyError, VocabularyWarning

if TYPE_CHECKING:
    from tl_dyck.language.tokenizer import build_tokenizer

__all__ = [
    "DyckDistribution",
    "DyckLanguage",
    "DyckStringError",
    "Language",
    "NoStackError",
    "StringList",
    "SymbolLanguage",
    "Vocabulary",
    "VocabularyError",
    "VocabularyWarning",
    "build_tokenizer",
    "read_strings",
]


if not TYPE_CHECKING:  # type checkers would take it as "every name exists", and miss typos

    def __getattr__(name: str) -> Any:
        """Import the tokenizer on first use: it needs `transformers`, as nothing else here does."""
        if name == "build_tokenizer":
            from tl_dyck.language.tokenizer import build_tokenizer

            return build_tokenizer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
