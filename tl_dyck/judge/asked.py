"""What a task asks for, whichever it is: brackets, or what an automaton says.

Knows: the right answer after each token, the string whose parts take the place of another's, and
among which logits the answer is. What is judged, and what judges, ask here, and so alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tl_dyck.certify.exact.balls import IntArray
from tl_dyck.certify.language.asking import wanted
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.language import DyckLanguage, DyckStringError
from tl_dyck.tasks import AutomatonTask, DyckTask
from tl_dyck.tasks.places import prefixes_at
from tl_dyck.tasks.tables import all_strings

MOST = 20_000
"""Strings that are listed: so many runs of each head and question take seconds."""


def right_answers(task: Any, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
    """The logit that is asked for after each token, BOS first; negative where none is."""
    if isinstance(task, DyckTask):
        return task.language.right_bracket(tokens)
    rows = torch.where(tokens < task.language.bos_token, tokens, NOTHING)[:, 1:].numpy()
    return torch.from_numpy(_wanted(task, rows))


def partners(task: Any, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
    """For each string the one by whose activations a part is exchanged.

    Of brackets it has all types exchanged. Of an automaton it is another string of the same length,
    drawn always alike among those that are asked for something else at the end.

    Raises:
        DyckStringError: one is no string of the automaton.
    """
    if isinstance(task, DyckTask):
        return exchange_types(task.language, tokens)
    place, others = _paired(task, tokens.shape[1] - 1)
    rows = [place.get(tuple(row), -1) for row in tokens.tolist()]
    if -1 in rows:
        string = task.language.to_string(tokens[rows.index(-1)])
        raise DyckStringError(f"{string!r} is no string of {task.name} of that length")
    return others[rows]


def closing_choices(language: DyckLanguage) -> list[int]:
    """The logits that may be asked for of brackets: those of the closing ones."""
    return [*range(language.n_brackets)][language.closing]


def choices(task: Any, length: int) -> list[int]:
    """The logits that may be asked for after strings of at most that length."""
    if isinstance(task, DyckTask):
        return closing_choices(task.language)
    answers = _answers(task, length).answer
    return [int(each) for each in np.unique(answers[answers != NOTHING])]


def exchange_types(language: DyckLanguage, tokens: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """The same strings with every type replaced by the next; the last by the first."""
    # + 2: the same bracket of the next type; BOS stays
    return torch.where(tokens < language.n_brackets, (tokens + 2) % language.n_brackets, tokens)


def logit_difference(
    among: list[int], logits: Float[Tensor, "*batch d_vocab"], right: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Logit of the right answer minus the mean of the others; 0 where none is asked for.

    Args:
        among: see `choices`.
        logits: of a model.
        right: see `right_answers`.
    """
    mine = logits.gather(-1, right.clamp(min=0)[..., None])[..., 0]
    # the mean of all but the right one
    others = (logits[..., among].sum(-1) - mine) / (len(among) - 1)
    return torch.where(right >= 0, mine - others, 0.0)


def log_probability(
    logits: Float[Tensor, "*batch d_vocab"], right: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Log-probability of the right answer; 0 where none is asked for."""
    found = logits.log_softmax(-1).gather(-1, right.clamp(min=0)[..., None])[..., 0]
    return torch.where(right >= 0, found, 0.0)


def listed(task: AutomatonTask, length: int) -> IntArray | None:
    """``[n, length + 1]`` every string, BOS first and to fill up; None if there are too many."""
    strings = all_strings(task, length, MOST)
    if strings is None:
        return None
    bos = task.language.bos_token
    return np.insert(np.where(strings < 0, bos, strings), 0, bos, axis=1)


@lru_cache(maxsize=16)
def _paired(task: AutomatonTask, length: int) -> tuple[dict[tuple[int, ...], int], Tensor]:
    """The place of each string, and the partners of all."""
    rows = listed(task, length)
    assert rows is not None  # a case has strings that are listed
    tokens = torch.from_numpy(rows)
    order = partner_rows(tokens, right_answers(task, tokens))
    return {row: place for place, row in enumerate(map(tuple, rows.tolist()))}, tokens[order]


def partner_rows(tokens: Int[Tensor, "n pos"], right: Shaped[Tensor, "n pos"]) -> Int[Tensor, " n"]:
    """For each string the number of its partner; its own, if all are asked for the same."""
    # what is asked for last: the columns are looked at from the end
    last = (right >= 0).int().flip(1).argmax(1, keepdim=True)
    said = right.flip(1).gather(1, last)[:, 0].tolist()
    order = np.random.default_rng(0).permutation(len(said)).tolist()
    bos = tokens[0, 0]
    lengths = (tokens[:, 1:] != bos).sum(1).tolist()
    groups: dict[int, list[int]] = {}
    for row in order:
        groups.setdefault(lengths[row], []).append(row)
    found = torch.arange(len(said))
    for rows in groups.values():
        after = None  # of the last rows, those that come first follow
        for row, following in reversed([*zip(rows, rows[1:] + rows[:1], strict=True)] * 2):
            after = following if said[following] != said[row] else after
            if after is not None and said[after] != said[row]:
                found[row] = after
    return found


def _wanted(task: AutomatonTask, strings: IntArray) -> IntArray:
    return wanted(task, lambda n: _answers(task, n), strings)


def _answers(task: AutomatonTask, length: int) -> Answers:
    """The automaton of beginnings of a length; of tasks without places that of all."""
    try:
        return _answers_once(task, length)
    except TypeError:  # somebody's own functions may have no hash
        return _answers_once.__wrapped__(task, length)


@lru_cache(maxsize=64)
def _answers_once(task: AutomatonTask, length: int) -> Answers:
    if task.places is not None:
        return Answers.of_prefixes(prefixes_at(task, length - 1))
    return Answers.of(task, length, follows=True)
