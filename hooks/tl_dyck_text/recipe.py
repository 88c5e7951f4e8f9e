"""What a classifier is trained on: the one place where data, words, edits and sizes meet.

Knows: that the vocabulary is that of the training sentences, that no sentence is cut, and how much
room the longest one needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final

from tl_dyck.certify import PerturbationSpace, load_synonyms
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.configuration import Configuration, number, whole
from tl_dyck.kit.registry import unknown_name
from tl_dyck_text.corpus import Corpus, CorpusError, build_words, load_folder, load_sst2
from tl_dyck_text.edits import BatchEdits, encode_sentences, text_space
from tl_dyck_text.model import TextConfig
from tl_dyck_text.training import TextTraining

_LONGEST = 512  # n_ctx, unless asked for


@checked
def load_corpus(data: str) -> Corpus:
    """Sentences from a folder (see `load_folder`), or SST2 by the name "sst2" (see `load_sst2`)."""
    return load_sst2() if data == "sst2" and not Path(data).exists() else load_folder(data)


class Ingredients(NamedTuple):
    """What a recipe comes to.

    Attributes:
        corpus: the sentences.
        synonyms: of words, best first.
        config: of the model.
        space: what training defends against.
    """

    corpus: Corpus
    synonyms: Mapping[str, tuple[str, ...]]
    config: TextConfig
    space: PerturbationSpace


@final
@dataclass(frozen=True, kw_only=True)
class TextRecipe(Configuration):
    """What a classifier of sentences is made of, and against which edits it is trained.

    Attributes:
        data: a folder with ``train.tsv`` and ``dev.tsv``, or "sst2".
        synonyms: a JSON file from a word to a list of words, best first; "" for none.
        space: what the robust objectives defend against.
        k: synonyms a word, at most.
        aside: share of the training sentences that is kept aside and stands for the test set, so
            that steps, width and decay can be chosen without a look at that; 0 for none.
        training: how.
        model: fields of `TextConfig` but ``words`` and ``n_classes``; without ``n_ctx`` there is
            room for the longest sentence with its duplications.

    Raises:
        ValueError: synonyms are defended against, and there are none.
        UnknownNameError: the model has no such field.
    """

    data: str
    synonyms: str = ""
    space: str = "dup:2,del:2,sub:2"
    k: int = whole(1)
    aside: float = number(0.0, most=0.9)
    training: TextTraining = field(default_factory=TextTraining)
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [
            each.name for each in fields(TextConfig) if each.name not in ("words", "n_classes")
        ]
        for name in self.model:
            if name not in known:
                raise unknown_name(
                    "parameter", f"model.{name}", [f"model.{each}" for each in known]
                )
        if self.training.objective != "clean" and "sub" in self.space and not self.synonyms:
            raise ValueError(
                f'"sub" in the space {self.space!r} needs synonyms, a JSON file from a word to a '
                "list of words"
            )

    def read(self) -> Ingredients:
        """Read the data, and settle what depends on it.

        Raises:
            CorpusError: the data cannot be used, or a sentence is very long.
            CorruptFileError: the synonyms are none.
            ValueError: the model cannot be so, or a sentence is longer than ``n_ctx`` allows.
        """
        corpus = load_corpus(self.data)
        if self.aside:
            corpus = corpus.set_aside(self.aside)
        synonyms = load_synonyms(self.synonyms) if self.synonyms else {}
        model = {name: value for name, value in self.model.items() if value is not None}
        make = partial(TextConfig, words=build_words(corpus.train), n_classes=corpus.n_classes)
        config = make(**model)
        space = text_space(self.space, config, synonyms, self.k)
        if "n_ctx" not in model:
            config = make(**model, n_ctx=_room(corpus, space, config))
        encode_sentences(config, (*corpus.train, *corpus.test), space)  # before training
        return Ingredients(corpus, synonyms, config, space)


def _room(corpus: Corpus, space: PerturbationSpace, config: TextConfig) -> int:
    """The least n_ctx for every sentence with its duplications, but no less than that of `config`.

    Raises:
        CorpusError: a sentence is so long that nobody can want that unasked: memory grows with the
            square of it.
    """
    sentence = max((*corpus.train, *corpus.test), key=lambda sentence: len(sentence.text.split()))
    longest = len(sentence.text.split())
    needed = max(config.n_ctx, longest + BatchEdits.of(space, config).budgets[0] + 1)
    if needed > _LONGEST:
        raise CorpusError(
            f"a sentence has {longest} words ({sentence.text[:30]!r}…): leave it out, or set "
            f"model.n_ctx={needed} if you have the memory, which grows with the square of that"
        )
    return needed
