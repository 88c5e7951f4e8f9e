"""What a judged method is: one function. And what it is asked: questions about a case.

A *case* is a model, the task that it solves, and questions whose answers are known. A *method* is
a function ``(case, questions) -> scores``: one number for each question, larger for "yes", and
positive where the method itself, with its own threshold subtracted, says yes. For questions that it
has nothing to say about it gives None in place of a number, or of the list: it is then not asked.
The decorators of `declarations` make one of less.

Register one by decorator, ``@methods.register("mine")``, or by entry point in the group
``tl_dyck.methods``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.judge.asked import choices, logit_difference, partners, right_answers
from tl_dyck.judge.small_tasks import TASKS
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.registry import Registry

#: Kinds of question, and what exactly each asks. "Breaks" means: there is a prefix of at most
#: `Case.length` brackets, one open at least, that the model closes right and that it no longer
#: does: the right bracket's logit is not the largest any more (ties count as wrong).
KINDS = {
    "needed": "Does it break if this head's output is set to zero, all else as it is?",
    "carries": (
        "Does it break if this head's output is what it would be on the string with all types "
        "exchanged, all else as it is? Of other tasks: on another string, with another answer."
    ),
    "pattern": "Does it break if this head attends to all positions equally, all else as it is?",
    "depth": (
        "Does it break if this head gives the output that belongs to another depth (one more, or 1 "
        "instead of D - 1; D stays), all else as it is?"
    ),
    "edge": (
        "Does it break if this part alone sees the output that that head, or the embedding, has on "
        "the string with all types exchanged, all else as it is?"
    ),
    "feature": (
        "Is what this head puts out, along this direction, positive where one type of bracket is "
        "open at one depth, and zero everywhere else?"
    ),
    "stack": "Does the model close every prefix right, up to the length that is named?",
    "same": "Do the two models close every prefix alike, up to the length that is named?",
    "token": "Is the prefix no longer closed right if no head sees this bracket from its end?",
}


#: Those that are about one head.
ABOUT_HEADS = ("needed", "carries", "pattern", "depth")
#: Those that are asked of models of every task.
OF_EVERY_TASK = ("needed", "carries", "pattern")


def column_of(kind: str, group: str = "") -> str:
    """The column of a kind of question, about a group of models; "" is those that are built."""
    return f"{kind}, {group}" if group else kind


def kind_of(column: str) -> str:
    """The kind of question of a column."""
    return column.partition(", ")[0]


#: Names of columns, in their order: trained models have some of their own, and so has each task.
COLUMNS = tuple(
    column_of(kind, group)
    for kind in KINDS
    for group in ("", "trained", "hidden", *(TASKS if kind in OF_EVERY_TASK else ()))
)

#: What no method should be, and how it answers: what knows all, what knows nothing, and cheats.
SAID_OF_CONTROLS = {
    "oracle": "is told the answers",
    "chance": "draws a number",
    "order": "the place of the question in the list",
    "parser": "the bracket that the string has open, without the model",
    "sizes": "how many layers and heads there are",
    "ov-norm": "the norm of what the head writes, by its weights",
    "edge-norm": "the norm of what is written times what reads it, by their weights",
    "kind-constant": "how often the answer is yes about other models of that kind",
    "forest": "a random forest on norms of weights that learnt from answers about others",
    "forest-other-kinds": "the same, which has seen no model of that kind",
    "attack": "the best of 24 learners that see all but what models do; asked by tests, not here",
}
CONTROLS = tuple(SAID_OF_CONTROLS)
#: What answers from a question or the weights, or from answers about other cases, and runs no
#: model. A method that is no better than they are has shown nothing. The last four are no methods:
#: see `tl_dyck.judge.cheats.bounds`, and `tests/judge/attack.py`.
CHEATS = CONTROLS[2:]


#: Nearer than this to where its steps lead, a method has converged, see `WithError`.
CONVERGED = 0.01


class JudgeError(DyckError, ValueError):
    """A method's answer has the wrong shape, or a case cannot be made as asked."""


@final
@dataclass(frozen=True)
class Question:
    """A question with a yes or no for an answer.

    Attributes:
        kind: a key of `KINDS`.
        target: what it is about. Of `ABOUT_HEADS`: (layer, head). Of "edge": (source, reader), see
            `tl_dyck.judge.edges.Edge`. Of "feature": (layer, head, index in `Case.directions`). Of
            "token": (tokens of the prefix with BOS, index of the bracket in them). Of "stack" and
            "same": (longest length, in brackets,).
    """

    kind: str
    target: tuple[Any, ...]


def by_target(question: Question) -> tuple[Any, ...]:
    """The place of a question among others: by its kind and target, which say nothing of answers.

    Examples:
        >>> asked = [Question("edge", (None, (0, 1))), Question("needed", (1, 0))]
        >>> [question.kind for question in sorted(asked, key=by_target)]
        ['needed', 'edge']
    """
    return [*KINDS].index(question.kind), _sortable(question.target)


def _sortable(part: Any) -> tuple[Any, ...]:
    """None first, then numbers, then what is nested."""
    if isinstance(part, tuple):
        return 2, *map(_sortable, part)
    return (0,) if part is None else (1, part)


@final
@dataclass(frozen=True)
class Fact:
    """A question and its answer, which is proved or computed on every string.

    Attributes:
        question: what is asked.
        answer: yes or no.
        proof: how it is known: "enumerated", or the argument in a few words, or a string.
        effect: of what was enumerated, the exact share of closing brackets, weighted by their
            probability among prefixes of `Case.length` brackets, that are no longer right; else
            None.
        sizes: of what was enumerated, how large the effect is, exactly, by the unit in which a
            method may say that: "logits", how far the mean difference between the logits of the
            right bracket and the other closing ones moves; "of the difference", the same as a share
            of how far it moves on the string with all types exchanged; "nats", how far the mean
            log-probability of the right bracket moves.
    """

    question: Question
    answer: bool
    proof: str
    effect: float | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)


@final
@checked
@dataclass(frozen=True, eq=False)
class Case:
    """What a method is shown: neither of which kind the model is, nor from which seed.

    Beside what is below it has, computed when asked for: `right` and `partners` ``[n, pos]``, the
    answer after each token and the strings to exchange with; `choices`, the logits that may be
    right; `place`, `difference` and `forward`, functions of answers, logits and embeddings.

    Attributes:
        model: a HookedTransformer, float64, in eval mode, without gradients unless they are
            enabled; ``model.cfg`` has n_layers, n_heads, d_head, d_model, d_vocab.
        task: which it solves: a `DyckTask`, or an `AutomatonTask`, which has no brackets.
        length: up to so many symbols, "every prefix" means every one.
        tokens: strings of the task to look at, ``[n, pos]``, integers, BOS first; n is 64, and pos
            is `length` + 1.
        other: a second model, for "same"; None where that is not asked.
        directions: of heads' outputs, for "feature", ``[n, d_head]``; None where that is not asked.
        name: digits that tell cases apart, and tell nothing of them.
    """

    model: Any
    task: Any
    length: int
    tokens: Tensor
    other: Any = None
    name: str = "0"
    directions: Tensor | None = None

    @property
    def right(self) -> Int[Tensor, "n pos"]:
        """The logit that is asked for after each of `tokens`; negative where none is."""
        return right_answers(self.task, self.tokens)

    @property
    def partners(self) -> Int[Tensor, "n pos"]:
        """For each of `tokens` the string with all types exchanged.

        Of a task without brackets another one, with another answer: that of "carries".
        """
        return partners(self.task, self.tokens)

    @property
    def choices(self) -> list[int]:
        """The logits that may be asked for, such as those of closing brackets."""
        return choices(self.task, self.length)

    @checked
    def place(self, right: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """The place of an answer among `choices`; 0 where none is asked for.

        Raises:
            JudgeError: an answer is none of them.
        """
        among = right.new_tensor(self.choices)
        if bool(((right >= 0) & ~torch.isin(right, among)).any()):
            raise JudgeError(
                f"right must be among {self.choices}, or negative where nothing is asked"
            )
        return torch.searchsorted(among, right.clamp(min=among[0]))

    @checked
    def difference(
        self, logits: Float[Tensor, "*n d_vocab"], right: Int[Tensor, "*n"]
    ) -> Float[Tensor, "*n"]:
        """Logit of the right answer minus the mean of the other `choices`; 0 where none is.

        Raises:
            JudgeError: the answers are not one for each row of logits.
        """
        if logits.shape[:-1] != right.shape:
            raise JudgeError(
                f"right must be {[*logits.shape[:-1]]}, an answer for each row of logits, "
                f"got {[*right.shape]}"
            )
        return logit_difference(self.choices, logits, right)

    @checked
    def forward(self, embeddings: Float[Tensor, "n pos d_model"]) -> Float[Tensor, "n pos d_vocab"]:
        """Logits if these stood where tokens are looked up (`hook_embed`); gradients flow.

        What attributes to embeddings by hand takes it for its function.
        """
        tokens = torch.full(embeddings.shape[:2], self.task.language.bos_token)
        hooks = [("hook_embed", lambda found, hook: embeddings)]
        logits: Tensor = self.model.run_with_hooks(tokens, fwd_hooks=hooks)
        return logits


@final
@dataclass(frozen=True, eq=False)
class WithError:
    """Numbers that take steps, samples or a solver, and how far they are from converged.

    What a method returns, or the function that a decorator makes one of. An answer whose error is
    above `CONVERGED` is none. `tl_dyck.judge.convergence` finds errors and takes more steps.

    Attributes:
        values: what is returned where nothing has to converge.
        error: relative, 0.01 is 1 %; one for all, or one for each: question of a method, head
            ``[layer, head]``, or string of brackets ``[n]``.
    """

    values: Any
    error: Any


Scores = Sequence[float | None] | WithError | None
Method = Callable[[Case, Sequence[Question]], Scores]

methods: Registry[Method] = Registry("method", "tl_dyck.methods")
register_method = methods.register
"""Decorator that registers a method of your own: see `Registry.register`."""
