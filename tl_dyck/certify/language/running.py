"""Any model on an automaton's strings, by running it: every string of a length, or drawn ones.

Knows: which models can only be run, and how the strings of a length are gone through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import nn

from tl_dyck.certify.deadline import RUN_A_LOOK, Deadline
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language.lengths import refuse_long
from tl_dyck.certify.language.questions import network_of, start_of
from tl_dyck.certify.language.runner import Runner, Tokens
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.language.chain import Chain
from tl_dyck.reading.inputs import check_predicts, check_reads, hides_bos, looks_ahead
from tl_dyck.rnn import TwoLayerRNN, UnsupportedModelError
from tl_dyck.rnn.unsupported import refuse_foreign
from tl_dyck.tasks import AutomatonTask
from tl_dyck.tasks.places import prefixes_at

_BLOCK = 1024
"""Strings that are run, or made longer, at once."""


@final
class Says:
    """What a model says of whole strings of one length.

    Args:
        run: of tokens ``[n, length]``, without BOS, to logits ``[n, outputs]``.
        model: whose it is; None of a function.
        bare: whether it has nothing to read before the first symbol.
    """

    def __init__(self, run: Callable[[Tokens], Array], model: Any, *, bare: bool) -> None:
        self.run, self.model, self.bare = run, model, bare


def says_of(model: Any, task: AutomatonTask, longest: int, *, allowed: bool) -> Says | None:
    """A model that can only be run; None if strings are paths of a graph to it, or it is refused.

    Args:
        model: a function of tokens ``[n, length]`` (the symbols' ids, without BOS) to logits
            ``[n, outputs]``, what it says of each whole string; or a causal model of several
            layers.
        task: the automaton.
        longest: length of its strings.
        allowed: whether the claim is about which symbols may follow.

    Raises:
        CertifyError, VocabularyError: the model reads other tokens, or shorter strings.
        UnsupportedModelError: it has several layers and looks ahead.
    """
    if not (isinstance(model, (nn.Module, TwoLayerRNN)) or hasattr(model, "model_or_rnn")):
        return _of_function(model) if callable(model) else None
    if isinstance(model, TwoLayerRNN) or not hasattr(model, "cfg"):
        return None
    refuse_foreign(model)
    if model.cfg.n_layers < 2:
        return None
    if looks_ahead(model):
        raise UnsupportedModelError(
            f"the model has {model.cfg.n_layers} layers and looks ahead; give a function of whole "
            "strings, such as lambda tokens: model(tokens)[:, 0], which is run on all that it can, "
            "and the task no asked="
        )
    bos = start_of(model, task.language)
    if model.cfg.d_vocab == task.language.bos_token and model.cfg.__dict__.get("language") is None:
        bos = None
    elif task.answer is None or allowed:
        check_predicts(model, task.language, told=True)
    else:
        check_reads(model, task.language, told=True)
    try:
        network_of(model, bos)
        return None
    except UnsupportedModelError:
        refuse_long(model.cfg.n_ctx, longest, int(bos is not None))
    runner = Runner(model, bos)
    return Says(runner.batch, model, bare=bos is None or hides_bos(model))


def _of_function(model: Callable[..., Any]) -> Says:
    @torch.no_grad()
    def run(strings: Tokens) -> Array:
        said = model(torch.from_numpy(strings))
        if not isinstance(said, torch.Tensor) or said.ndim != 2 or len(said) != len(strings):
            found = tuple(said.shape) if isinstance(said, torch.Tensor) else type(said).__name__
            raise CertifyError(
                "a function that is decided by running it must map tokens [n, length] to logits "
                f"[n, outputs], what it says of whole strings; of {strings.shape} it gave {found}"
            )
        logits: Array = said.double().cpu().numpy()
        return logits

    return Says(run, None, bare=True)


@final
class Strings:
    """An automaton's strings, length by length, and what a model must say of each.

    Args:
        task: the automaton.
        longest: length of its strings.
        threshold: of the claim "allowed"; None for "any_token".
        says: the model.

    Attributes:
        numbers: how many of each length are asked for something.
    """

    def __init__(
        self, task: AutomatonTask, longest: int, threshold: float | None, says: Says
    ) -> None:
        self.task, self.longest, self.threshold, self.says = task, longest, threshold, says
        self.numbers = [0] * (longest + 1)
        if task.asked is None:
            self.numbers = self._every_length.asking(longest, bare=says.bare)
        else:
            for place in (place for place in task.asked if place < longest):
                found = self.answers(place + 1).asking(place + 1, bare=says.bare)
                self.numbers[place + 1] = found[-1]

    @cached_property
    def _every_length(self) -> Answers:
        more = self.threshold is not None
        return self._asked(Answers.of(self.task, self.longest, follows=more))

    def _asked(self, answers: Answers) -> Answers:
        return answers if self.threshold is None else answers.allowed()[0]

    def answers(self, length: int) -> Answers:
        """The automaton that reads the strings of a length."""
        if self.task.asked is None:
            return self._every_length
        return self._asked(Answers.of_prefixes(prefixes_at(self.task, length - 1)))

    def order(self, length: int) -> IntArray:
        """The places of a string in the order in which its automaton reads it."""
        if self.task.asked is None:
            return np.arange(length)
        return prefixes_at(self.task, length - 1).order

    def every(self, length: int) -> Iterator[Tokens]:
        """All strings of a length that are asked something, as they stand, some at a time."""
        answers = self.answers(length)
        alive = reaching(answers.after, answers.answer != NOTHING, length)
        waiting = [(np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64))]
        if not alive[length, 0]:
            return
        while waiting:
            state, strings = waiting.pop()
            if strings.shape[1] == length:
                yield self.written(strings)
                continue
            here, token = np.nonzero(alive[length - strings.shape[1] - 1, answers.after[state]])
            longer = np.concatenate([strings[here], token[:, None]], axis=1)
            after = answers.after[state[here], token]
            for start in reversed(range(0, len(after), _BLOCK)):
                block = slice(start, start + _BLOCK)
                waiting.append((after[block], longer[block]))

    def draw(self, length: int, numbers: Array) -> Tokens:
        """Strings of a length, of those that are asked something, each as likely.

        Args:
            length: in symbols.
            numbers: ``[n, length]`` drawn from [0, 1).
        """
        return self.written(drawing(self.answers(length), length).draw(numbers, length))

    def margins(self, strings: Tokens) -> tuple[Array, Array, IntArray]:
        """Of strings of one length: how clearly what is said is right, the logits, the answers.

        A logit that is no number makes the margin -inf.
        """
        length = strings.shape[1]
        answers, state = self.answers(length), np.zeros(len(strings), dtype=np.int64)
        for symbols in strings[:, self.order(length)].T:
            state = answers.after[state, symbols]
        answer, each = answers.answer[state], np.arange(len(strings))
        logits = self.says.run(strings)
        if self.threshold is None:
            self._check(int(answer.max()), logits.shape[1])
            others = logits.copy()
            others[each, answer] = -np.inf
            with np.errstate(invalid="ignore"):
                margin = logits[each, answer] - others.max(1)
            margin[np.isnan(margin)] = 0.0  # of two that are infinite neither is larger
        else:
            n_symbols = len(self.task.symbols)
            self._check(n_symbols - 1, logits.shape[1])
            sets, which = np.unique(answer, return_inverse=True)
            may = np.array([answers.follows(int(number)) for number in sets])[which]
            above = logits[:, :n_symbols] - self.threshold
            margin = np.where(may, above, -above).min(1)
        return np.where(np.isnan(logits).any(1), -np.inf, margin), logits, answer

    def _check(self, most: int, outputs: int) -> None:
        if most >= outputs or outputs < 2 - (self.threshold is not None):
            raise CertifyError(
                f"{self.task.name} asks for answer {most}, but the model has {outputs} logits"
            )

    def written(self, strings: Tokens) -> Tokens:
        """Strings in the order in which they are read, as they stand."""
        found = np.empty_like(strings)
        found[:, self.order(strings.shape[1])] = strings
        return found


def reaching(after: IntArray, ends: BoolArray, longest: int) -> BoolArray:
    """[longest + 1, states + 1] whether so many symbols lead to an end; the last state is none."""
    found = np.zeros((longest + 1, len(after) + 1), dtype=bool)
    found[0, :-1] = ends
    for left in range(longest):
        found[left + 1, :-1] = found[left][after].any(1)
    return found


def drawing(answers: Answers, length: int) -> Chain:
    """Draws every string of a length alike, of those that are asked something."""
    after = np.where(answers.after == NOTHING, len(answers.after), answers.after)
    # each symbol has the weight 1
    weight = np.where(answers.after == NOTHING, -np.inf, 0.0)
    ends = np.where(answers.answer == NOTHING, -np.inf, 0.0)
    return Chain.of(after, weight, ends, length)


def judge_run(
    strings: Strings, length: int, note: Callable[[Tokens, Array, IntArray], None] = lambda *_: None
) -> Callable[[int, torch.Generator, Deadline], tuple[int, int]]:
    """What draws strings of a length and judges them by running the model, see `sample_error`.

    Args:
        strings: whose they are.
        length: in symbols.
        note: is told of strings, their margins and answers.
    """

    def judge(n: int, generator: torch.Generator, deadline: Deadline) -> tuple[int, int]:
        deadline.check(n / RUN_A_LOOK)
        numbers = torch.rand(n, length, generator=generator, dtype=torch.float64).numpy()
        drawn = strings.draw(length, numbers)
        margin, _, answer = strings.margins(drawn)
        note(drawn, margin, answer)
        return int((margin < 0).sum()), int((margin == 0).sum())

    return judge
