"""How a model does on strings that somebody gives: by length, by depth, and where it takes a stack.

Knows: what is asked at each place of a string, and what is enough to know the answer there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_number, shown
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.language.strings import as_strings
from tl_dyck.reading.inputs import check_finite, check_predicts, hides_bos, longest_read
from tl_dyck.reading.predict import LanguageModel, likeliest, predictions
from tl_dyck.tasks.automaton import AutomatonTask
from tl_dyck.tasks.dyck import DyckTask, complete_strings
from tl_dyck.tasks.names import load_task, task_of
from tl_dyck.tasks.tables import Table

if TYPE_CHECKING:
    import pandas as pd

#: What is enough to know what is asked, from little to much.
NEEDS = ("previous", "counter", "stack")
#: The same of an automaton.
STATES = ("previous", "state")

_CLAIMS = ("any_token", "allowed")
_BINS = 6  # of lengths, that are printed


class AskedPlaces(NamedTuple):
    """What is asked after each token of some strings.

    Attributes:
        places: ``[n, pos]`` where something is asked.
        right: ``[n, pos]`` the symbol that must have the largest logit; or ``[n, pos, symbol]``
            those whose logits must be above the threshold, and no others.
        needs: ``[n, pos]`` which of `NEEDS` or `STATES` is enough.
        depth: ``[n, pos]``; None of an automaton.
    """

    places: Bool[Tensor, "n pos"]
    right: Tensor
    needs: Int[Tensor, "n pos"]
    depth: Int[Tensor, "n pos"] | None


@final
@dataclass(frozen=True, kw_only=True)
class StringAccuracy:
    """Accuracy on given strings; `print` shows it.

    Attributes:
        claim: "any_token" or "allowed".
        accuracy: share of the places where something is asked that the model has right.
        whole: share of the strings that it has right at every place, as many papers count.
        places: how many are asked.
        strings: how many strings were read of which something is asked.
        too_long: how many were left out, as the model reads no string so long.
        table: one row for each length, depth, and what is enough to know the answer (`needs`):
            columns by, of, places, right, accuracy; strings and whole of lengths, NaN of others. A
            string of a length has so many symbols, a place of a depth so many open brackets.
            "previous": the symbol before is enough; "counter": how many brackets of each type are
            open, as all are of one; "stack": several types are. Of an automaton "state", if it is
            not "previous".
    """

    claim: str
    accuracy: float
    whole: float
    places: int
    strings: int
    too_long: int
    table: pd.DataFrame

    def __str__(self) -> str:
        left = f"; {self.too_long:,} strings are too long for the model" if self.too_long else ""
        lines = [
            f"{self.claim}: {self.accuracy:.2%} of {self.places:,} places, {self.whole:.2%} of "
            f"{self.strings:,} strings everywhere{left}"
        ]
        for by, rows in self.table.groupby("by", sort=False):
            for group in np.array_split(np.arange(len(rows)), min(len(rows), _BINS)):
                some = rows.iloc[group]
                first, last = some["of"].iloc[0], some["of"].iloc[-1]
                of = str(first) if first == last else f"{first} to {last}"
                places, right = int(some["places"].sum()), int(some["right"].sum())
                lines.append(f"  {by:7} {of:>12}  {right / places:8.2%} of {places:,}")
        return "\n".join(lines)


@checked
def accuracy_on(
    model: LanguageModel,
    strings: Any,
    task: Any = None,
    *,
    claim: str = "any_token",
    threshold: float | None = None,
    device: Any = None,
) -> StringAccuracy:
    """How much of some strings a model has right, and where.

    With "any_token" each closing bracket of a string is asked for, or of an automaton each symbol
    that its task counts: it must have the largest logit. With "allowed" it is asked after each
    symbol, and at the beginning, which symbols may follow: those must have logits above the
    threshold, and no others.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> task = load_task("dyck-2-4")
        >>> found = accuracy_on(construct.uniform_attention(task.language), ["[()]", "[()([])]"])
        >>> found.accuracy, found.table.set_index("of")["places"]["stack"].item()
        (1.0, 1)

    Args:
        model: causal; reads the symbols' tokens, BOS first (see `tl_dyck.adopt`).
        strings: what `read_strings` returned; or texts, which are read as its lines are.
        task: whose strings they are; needed of what is no Dyck language.
        claim: "any_token" or "allowed".
        threshold: of "allowed", see `tl_dyck.certify_language`.
        device: where the model is.

    Raises:
        UnknownNameError: no such claim.
        ValueError: nothing is asked of any string that the model reads.
        DyckStringError: a string is not of the language.
        VocabularyError: the model reads other tokens.
        NotCausalError: predictions depend on later tokens.
    """
    if claim not in _CLAIMS:
        raise unknown_name("claim", claim, _CLAIMS)
    if threshold is not None and claim != "allowed":
        raise WrongValueError(f"claim {claim!r} has no threshold, which is {shown(threshold)}")
    above = check_number("threshold", 0.0 if threshold is None else threshold)
    check_finite(model)
    task = _task(model, strings, task)
    known = as_strings(strings, task.language)
    check_predicts(model, task.language)
    ask, names = _asker(task, claim)
    # BOS takes a place
    longest = longest_read(model) - 1
    counts = _Counts(len(names))
    too_long = int((known.lengths > longest).sum())
    for rows, tokens in known.batches():
        kept = known.lengths[rows] <= longest
        if not kept.any():
            continue
        rows, tokens = rows[kept], tokens[torch.from_numpy(kept)]
        # a batch is as long as the longest that is kept, and BOS
        tokens = tokens[:, : 1 + int(known.lengths[rows].max())]
        asked = ask(tokens)
        asked.places[:, : hides_bos(model)] = False
        good = _right(model, tokens, asked, task.language, above, device)
        counts.add(known.lengths[rows], asked, good)
    if not counts.places:
        raise WrongValueError(
            f"of none of {len(known):,} strings anything is asked by {claim!r} that the model reads"
        )
    return StringAccuracy(claim=claim, too_long=too_long, **counts.result(names))


def _task(model: Any, strings: Any, task: Any) -> Any:
    """The task, or one of the language of the strings or the model."""
    task = load_task(task) if isinstance(task, str) else task
    if task is None:
        owner = strings if hasattr(strings, "language") else getattr(model, "cfg", None)
        language = getattr(owner, "language", None)
        if language is None:
            raise WrongTypeError(
                "nothing says which language these strings are of; give task=, or "
                "read_strings(file, language)"
            )
        of_brackets = isinstance(language, DyckLanguage)
        return complete_strings(language) if of_brackets else task_of(language)
    if not isinstance(task, DyckTask | AutomatonTask):
        raise WrongTypeError(f"task must be one of brackets or of an automaton, got {shown(task)}")
    return task


def _right(
    model: Any, tokens: Tensor, asked: AskedPlaces, language: Any, above: float, device: Any
) -> Bool[Tensor, "n pos"]:
    """Whether a model is right after each token."""
    # one more, which is not read, so that it is also asked after the last
    more = torch.cat([tokens, tokens[:, :1]], 1)
    length = int((tokens[0, 1:] != language.bos_token).sum())
    # where it is tested that the model is causal: in the middle of the first string
    how = {"first": 1 + length // 2, "device": device, "chunk": len(tokens)}
    ((_, logits),) = predictions(model, more, language.d_vocab, **how)
    if asked.right.ndim == 2:
        return likeliest(logits) == asked.right
    found: Tensor = ((logits[..., : language.bos_token] > above) == asked.right).all(-1)
    # NaN > above is False, which would be right wherever nothing may follow
    return found & ~logits[..., : language.bos_token].isnan().any(-1)


class _Counts:
    """Places and right ones, by length, depth and need."""

    def __init__(self, n_needs: int) -> None:
        self.by: dict[str, dict[int, NDArray[np.int64]]] = {"length": {}, "depth": {}, "needs": {}}
        self.places = self.right = self.strings = self.whole = 0
        self.n_needs = n_needs

    def add(self, lengths: NDArray[np.int64], asked: AskedPlaces, good: Tensor) -> None:
        """The answers of some strings."""
        places, right = asked.places, asked.places & good
        number, fine = places.sum(-1).numpy(), right.sum(-1).numpy()
        whole = (number > 0) & (number == fine)
        self.places += int(number.sum())
        self.right += int(fine.sum())
        self.strings += int((number > 0).sum())
        self.whole += int(whole.sum())
        for length in np.unique(lengths[number > 0]).tolist():
            at = lengths == length
            row = [number[at].sum(), fine[at].sum(), (number[at] > 0).sum(), whole[at].sum()]
            self._note("length", length, row)
        groups = {"depth": asked.depth, "needs": asked.needs}
        for by, values in groups.items():
            for value in [] if values is None else values[places].unique().tolist():
                at = values == value
                # no strings: one has places of many depths
                row = [(places & at).sum().item(), (right & at).sum().item(), 0, 0]
                self._note(by, value, row)

    def _note(self, by: str, value: int, row: list[Any]) -> None:
        self.by[by][value] = self.by[by].get(value, 0) + np.array(row, dtype=np.int64)

    def result(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The fields of a `StringAccuracy`."""
        import pandas as pd

        rows = []
        for by, of in self.by.items():
            for value, (places, right, strings, whole) in sorted(of.items()):
                row: dict[str, Any] = {"by": by, "of": names[value] if by == "needs" else value}
                row |= {"places": places, "right": right, "accuracy": right / places}
                of_strings = by == "length"
                row["strings"] = strings if of_strings else np.nan
                row["whole"] = whole / strings if of_strings else np.nan
                rows.append(row)
        return {
            "accuracy": self.right / self.places,
            "whole": self.whole / self.strings,
            "places": self.places,
            "strings": self.strings,
            "table": pd.DataFrame(rows),
        }


# --- what is asked --------------------------------------------------------------------------------


def _asker(task: Any, claim: str) -> tuple[Callable[[Tensor], AskedPlaces], tuple[str, ...]]:
    """What asks of tokens, and the names of what is enough."""
    if isinstance(task, DyckTask):
        return lambda tokens: _of_brackets(task, tokens, claim), NEEDS
    return lambda tokens: _of_automaton(task, tokens, claim), STATES


def _inside(tokens: Tensor, bos: int) -> Bool[Tensor, "n pos"]:
    """BOS at the start, and the symbols."""
    found = tokens != bos
    found[:, 0] = True
    return found


def _of_brackets(task: DyckTask, tokens: Int[Tensor, "n pos"], claim: str) -> AskedPlaces:
    language = task.language
    depth, opened = language.depth(tokens), language.is_open(tokens)
    kinds = torch.zeros_like(depth)  # how many types are open
    for kind in range(language.n_types if int(depth.max()) > 1 else 1):
        # a type's own depth rises by its opening brackets and falls by its closing ones
        step = (tokens == 2 * kind).long() - (tokens == 2 * kind + 1).long()
        kinds += step.cumsum(-1) > 0
    # indices of `NEEDS`: of one type the number that is open is enough
    needs = torch.where(kinds > 1, 2, 1)
    # after an opening bracket its type is known, and with depth 1 how deep it is
    needs[opened] = int(claim == "allowed" and language.max_depth > 1)
    needs[:, 0] = 0
    if claim == "allowed":
        return AskedPlaces(_inside(tokens, language.bos_token), task.allowed(tokens), needs, depth)
    # what is asked after a token is the next one; the last has none
    following = tokens.roll(-1, -1)
    following[:, -1] = language.bos_token
    return AskedPlaces(language.is_close(following), following, needs, depth)


def _of_automaton(task: AutomatonTask, tokens: Int[Tensor, "n pos"], claim: str) -> AskedPlaces:
    bos, places = task.language.bos_token, _inside(tokens, task.language.bos_token)
    may = task.allowed(tokens)
    if claim == "allowed":
        places &= may.any(-1)
        return AskedPlaces(places, may, _needed(task, tokens, claim), None)
    if task.answer is not None:
        raise WrongValueError(
            f"{task.name} asks for answers, which are no symbols of the strings; its claim is "
            "certify_language's, or 'allowed' here"
        )
    following = tokens.roll(-1, -1)
    following[:, -1] = bos
    # likewise one place earlier
    counted = task.counted_positions(tokens).roll(-1, -1)
    counted[:, -1] = False
    return AskedPlaces(counted, following, _needed(task, tokens, claim), None)


def _needed(task: AutomatonTask, tokens: Tensor, claim: str) -> Int[Tensor, "n pos"]:
    """Indices of `STATES`: what is enough to know what is asked for."""
    if task.places is not None:  # what stands at a place is asked for in the light of all others
        return (tokens != task.language.bos_token).long()
    table, states = task.states_of(tokens)
    if claim == "allowed":
        return _by_last(task, table, tokens, states, lambda state: _follows(task, table, state))
    return _by_last(task, table, tokens, states, lambda state: tuple(table.counted[state]))


def _follows(task: AutomatonTask, table: Table, state: int) -> tuple[str, ...]:
    return tuple(sorted(task.moves(table.states[state])))


def _by_last(
    task: AutomatonTask,
    table: Table,
    tokens: Tensor,
    states: NDArray[np.int64],
    asks: Callable[[int], Any],
) -> Int[Tensor, "n pos"]:
    """0 where all states that the last symbol leads to ask for the same; else 1."""
    # one more, for BOS
    several = np.ones(len(task.symbols) + 1, dtype=np.int64)
    for symbol, to in enumerate(table.chain.after.T):
        reached = {asks(state) for state in np.unique(to[to < len(table.states)]).tolist()}
        several[symbol] = len(reached) > 1
    several[-1] = 0  # BOS leads to the first state alone
    return torch.from_numpy(several)[tokens.cpu()]
