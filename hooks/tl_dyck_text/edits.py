"""Perturbation spaces of sentences, for one (exact certificates) and for batches (training).

A batch holds sentences side by side, ``word … word <cls>`` and padding. What may be done to each
word (keep it, repeat it, drop it, replace it by one of K synonyms) is the same set of options in
every state of the budgets, so that the shortest path of `tl_dyck.certify` becomes one loop over
words, with all sentences and all states at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tl_dyck.certify import (
    STOP_WORDS,
    Delete,
    Duplicate,
    PerturbationSpace,
    SpaceError,
    Substitute,
    parse_space,
    substitution_table,
)
from tl_dyck.kit.arguments import checked
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.model import TextConfig

KEEP, DUPLICATE, DELETE, SUBSTITUTE = range(4)
_KINDS = ("dup", "del", "sub")


@checked
def text_space(
    text: str, config: TextConfig, synonyms: Mapping[str, Sequence[str]], k: int | None = None
) -> PerturbationSpace:
    """A space of sentences, from "dup:2,del:2,sub:2".

    It takes any word but "<cls>", `STOP_WORDS`, and up to k synonyms a word.

    Raises:
        SpaceError: another transformation, no budget, one named twice, or k below 1.
    """
    if k is not None and k < 1:
        raise SpaceError(f"k is a number of synonyms a word, at least 1, not {k}.")
    for part in text.split(","):
        if part.partition(":")[0].strip() not in _KINDS:
            raise SpaceError(
                f"{part.strip()!r} is none of dup:N, del:N, sub:N, "
                "of which a space of sentences is made."
            )
    table = substitution_table(synonyms, config.words, k)
    return parse_space(
        text,
        substitutes={token: found for token, found in table.items() if token > config.cls_token},
        deletable=[token for token, word in enumerate(config.words) if word in STOP_WORDS],
        protected=(config.cls_token,),
    )


def encode_sentences(
    config: TextConfig, sentences: Iterable[Sentence], space: PerturbationSpace | None = None
) -> list[list[int]]:
    """Tokens of sentences, "<cls>" at the end.

    None is ever cut: training, accuracy and certificates read the same.

    Args:
        config: of the model.
        sentences: to encode.
        space: whose duplications must fit too.

    Raises:
        ValueError: a sentence is longer than the model reads; says which, and what n_ctx it needs.
    """
    more = BatchEdits.of(space, config).budgets[0] if space is not None else 0
    rows = []
    for number, sentence in enumerate(sentences, start=1):
        rows.append(config.encode(sentence.text))
        if len(rows[-1]) + more > config.n_ctx:
            repeated = f", and {more} may be repeated," if more else ""
            raise ValueError(
                f"sentence {number} ({sentence.text[:30]!r}…) has {len(rows[-1]) - 1} "
                f"words{repeated} but the model reads {config.n_ctx - 1}: train one with "
                f"n_ctx={len(rows[-1]) + more}, or leave it out"
            )
    return rows


def pad(
    rows: Sequence[Sequence[int]], cls_token: int = 1
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]:
    """Sentences, padded on the right with `cls_token`, and their lengths ("<cls>" included)."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.full((len(rows), int(lengths.max())), cls_token, dtype=torch.int64)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.tensor(row)
    return tokens, lengths


@final
@dataclass(frozen=True)
class BatchEdits:
    """A space of sentences as arrays.

    Attributes:
        budgets: of duplications, deletions and substitutions.
        may: [2, V] which tokens may be repeated, and dropped.
        synonyms: [V, K] substitutes of each token, padded with -1.
    """

    budgets: tuple[int, int, int]
    may: NDArray[np.bool_]
    synonyms: NDArray[np.int64]

    @classmethod
    def of(cls, space: PerturbationSpace, config: TextConfig) -> BatchEdits:
        """The arrays of a space that consists of dup, del and sub.

        Raises:
            SpaceError: it has other transformations, or deletes any word.
        """
        v = len(config.words)
        budgets = dict.fromkeys(_KINDS, 0)
        may, table = np.zeros((2, v), dtype=bool), np.full((v, 1), -1)
        for transformation, budget in space.transformations:
            if isinstance(transformation, Duplicate):
                may[0] = True
                may[0, list(transformation.but)] = False
            elif isinstance(transformation, Delete) and transformation.words is not None:
                may[1, list(transformation.words)] = True
            elif isinstance(transformation, Substitute):
                table = _padded(transformation.table, v)
            else:
                raise SpaceError(
                    f"{transformation!r} is not one of dup, del (of given words) and sub."
                )
            budgets[transformation.name] = budget
        if may[:, config.cls_token].any() or (table[config.cls_token] >= 0).any():
            raise SpaceError('the space edits "<cls>", where the answer is read; see text_space.')
        return cls((budgets["dup"], budgets["del"], budgets["sub"]), may, table)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the states of the budgets."""
        return tuple(budget + 1 for budget in self.budgets)  # type: ignore[return-value]

    def cheapest(
        self,
        tokens: Int[Tensor, "batch pos"],
        lengths: Int[Tensor, " batch"],
        cost: Float[np.ndarray, "batch token"],
        index: Int[np.ndarray, " vocab"],
    ) -> tuple[list[list[int]], Float[np.ndarray, " batch"]]:
        """The string of each sentence's space whose tokens cost least in sum.

        Args:
            tokens: the sentences.
            lengths: "<cls>" included; it is never edited, and its cost not counted.
            cost: of some tokens, for each sentence.
            index: vocabulary -> column of `cost`.

        Returns:
            The strings, "<cls>" included, and what each costs.
        """
        words, count = tokens.numpy(), (lengths - 1).numpy()
        batch, steps = words.shape[0], int(count.max())
        rows = np.arange(batch)
        to_go = np.full((steps + 1, batch, *self.shape), np.inf)
        choice = np.zeros((steps, batch, *self.shape), dtype=np.int8)
        to_go[-1] = 0.0
        substitute = np.zeros((steps, batch), dtype=np.int64)
        for i in range(steps - 1, -1, -1):
            real, word = i < count, words[:, i]
            keep = np.where(real, cost[rows, index[word]], 0.0)
            found = self.synonyms[word]  # [batch, K]
            replaced = np.where(found >= 0, cost[rows[:, None], index[found]], np.inf)
            best = replaced.argmin(1)
            substitute[i] = found[rows, best]
            extra = (
                np.where(real & self.may[0, word], 2 * keep, np.inf),
                np.where(real & self.may[1, word], 0.0, np.inf),
                np.where(real, replaced[rows, best], np.inf),
            )
            after = to_go[i + 1]
            least = after + keep[:, None, None, None]
            for kind, price in enumerate(extra):
                if self.budgets[kind] == 0:
                    continue
                # in state s so much is *left*; a use leads to the state with one less left
                left, fewer = _slices(kind)
                offered = after[fewer] + price[:, None, None, None]
                better = offered < least[left]
                least[left] = np.where(better, offered, least[left])
                choice[i][left] = np.where(better, kind + 1, choice[i][left])
            to_go[i] = least
        strings = self._read(words, count, choice, substitute)
        least_cost: NDArray[np.float64] = to_go[0][:, -1, -1, -1]
        return [[*string, int(words[b, count[b]])] for b, string in enumerate(strings)], least_cost

    def _read(self, words: Any, count: Any, choice: Any, substitute: Any) -> list[list[int]]:
        strings = []
        for b, n in enumerate(count.tolist()):
            left, string = list(self.budgets), []
            for i in range(n):
                kind = int(choice[i, b, left[0], left[1], left[2]])
                word = int(words[b, i])
                if kind == SUBSTITUTE:
                    word = int(substitute[i, b])
                string += [word] * (
                    1 if kind in (KEEP, SUBSTITUTE) else 2 if kind == DUPLICATE else 0
                )
                if kind != KEEP:
                    left[kind - 1] -= 1
            strings.append(string)
        return strings


def random_strings(
    edits: BatchEdits, rows: Sequence[Sequence[int]], rng: np.random.Generator
) -> list[list[int]]:
    """For each sentence one of its space: random uses of each transformation, at random words."""
    strings = []
    for row in rows:
        words: list[list[int]] = [[token] for token in row]
        free = rng.permutation(len(row) - 1).tolist()
        for kind, budget in enumerate(edits.budgets):
            for _ in range(int(rng.integers(budget + 1))):
                place = next((i for i in free if _can(edits, kind, row[i])), None)
                if place is None:
                    break
                free.remove(place)
                if kind == 0:
                    words[place] = [row[place]] * 2
                elif kind == 1:
                    words[place] = []
                else:
                    found = edits.synonyms[row[place]]
                    words[place] = [int(rng.choice(found[found >= 0]))]
        strings.append([token for word in words for token in word])
    return strings


def _can(edits: BatchEdits, kind: int, token: int) -> bool:
    return bool(edits.may[kind, token] if kind < 2 else edits.synonyms[token, 0] >= 0)


def _slices(kind: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """States with at least one use of a kind left, and the same states after it."""
    left, fewer = [slice(None)] * 4, [slice(None)] * 4
    left[kind + 1], fewer[kind + 1] = slice(1, None), slice(None, -1)
    return tuple(left), tuple(fewer)


def _padded(table: Mapping[int, Sequence[int]], v: int) -> NDArray[np.int64]:
    most = max((len(found) for found in table.values()), default=0)
    padded = np.full((v, max(1, most)), -1)
    for token, found in table.items():
        padded[token, : len(found)] = found
    return padded
