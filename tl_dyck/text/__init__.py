"""Robust one-layer classifiers of real sentences: data, training, the table of objectives."""

from tl_dyck.text.attack import Attack, UnsupportedTextModelError
from tl_dyck.text.certificates import certify_sentences
from tl_dyck.text.corpus import Corpus, CorpusError, Sentence, build_words, load_folder, load_sst2
from tl_dyck.text.edits import text_space
from tl_dyck.text.ibp import IntervalBound
from tl_dyck.text.recipe import Ingredients, TextRecipe, load_corpus
from tl_dyck.text.training import OBJECTIVES, TextTraining, TextTrainingError, accuracy, train_text

__all__ = [
    "OBJECTIVES",
    "Attack",
    "Corpus",
    "CorpusError",
    "Ingredients",
    "IntervalBound",
    "Sentence",
    "TextRecipe",
    "TextTraining",
    "TextTrainingError",
    "UnsupportedTextModelError",
    "accuracy",
    "build_words",
    "certify_sentences",
    "load_corpus",
    "load_folder",
    "load_sst2",
    "text_space",
    "train_text",
]
