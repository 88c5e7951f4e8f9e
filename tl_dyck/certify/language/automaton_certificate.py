"""The certificate of an automaton's strings: length by length, by the paths of a graph.

Knows: which models read an automaton's symbols, and what is said of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.exact.loss_counts import Losing
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.language.anytime import Anytime, counted
from tl_dyck.certify.language.asking import Asking
from tl_dyck.certify.language.automata import NOTHING, Least
from tl_dyck.certify.language.claims import read_threshold, said_to_follow
from tl_dyck.certify.language.lengths import first_gap, refuse_long
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.language.questions import network_of, start_of
from tl_dyck.certify.language.runner import Runner
from tl_dyck.certify.language.running import Strings
from tl_dyck.certify.language.tally import PrefixFound
from tl_dyck.certify.language.verdict import Bounds, LanguageCertificate, LengthResult
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.certify.questions import Asker
from tl_dyck.kit.verdicts import Verdict
from tl_dyck.reading.inputs import check_predicts, check_reads, logit_name, named_logits
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.rnn.unsupported import refuse_foreign
from tl_dyck.tasks import AutomatonTask


def decide_automaton(
    model: Any,
    task: AutomatonTask,
    lengths: tuple[int, ...],
    threshold: float | None,
    *,
    until: str | None,
    deadline: Deadline,
    tell: Callable[[float], None],
) -> LanguageCertificate:
    """Decide whether a model gives every string of some lengths the answer that its state asks for.

    Or, with a threshold, whether its logits say which symbols may follow.

    Args:
        model: a model of one layer, or its RNN, or of two layers without positions; it reads the
            symbols, and BOS if it has a token more than there are symbols.
        task: the automaton.
        lengths: in symbols, ascending.
        threshold: of the claim "allowed"; None for "any_token".
        until: "counted", for the least margin and the number of wrong strings of every length;
            "likeliest", for the least margins alone; "signs", for their signs; "refuted" ends at
            the first error; None for the signs, and those numbers if they take no longer.
        deadline: when to stop.
        tell: is told the share of the work done.

    Raises:
        CertifyError: the model reads other tokens or shorter strings, or lacks an answer.
        UnsupportedModelError: no such model.
    """
    started = time.perf_counter()
    network, runner = read_automaton(model, task, lengths[-1], allowed=threshold is not None)
    asking = Asking.of(network, task, lengths[-1], threshold)
    gap = first_gap(asking.numbers, lengths, "any_token", task.name)
    asked = [length for length in lengths if asking.numbers[length]]
    known = Anytime(asking, runner, asked, deadline, tell)
    known.decide(until)
    show = partial(shown, asking, runner.model, threshold)
    least = {length: known.least(length) for length in asked}
    lost = [each for of in known.known.values() for each in of.values() if each.high < 0]
    found, own = None, math.inf
    for each in [each for each in least.values() if each.high < 0]:
        if found is None or own >= 0:  # which the model's own rounding may hide
            logits = runner.batch(np.array([each.string], dtype=np.int64))[0]
            found = show(each, logits)
            own = asking.margins(found.length).objectives(each.answer).least(logits)
    seen = {each.string: each for each in [*least.values(), *lost] if each.string is not None}
    logits_of = zip(seen.values(), runner.after([*seen]), strict=True)
    of_string = {each.string: show(each, logits) for each, logits in logits_of}
    rows = [
        _row(asking.numbers[length], known, length, of_string.get(least[length].string))
        for length in asked
    ]
    margin = Bounds(min(e.low for e in least.values()), min(e.high for e in least.values()))
    status, reason = _verdict(rows, margin, found, own, deadline)
    shorter = [row for row in rows if found is not None and row.length < found.length]
    return LanguageCertificate(
        status=status,
        claim="any_token" if threshold is None else "allowed",
        threshold=threshold,
        language=str(task.language),
        lengths=lengths,
        gap=gap,
        margin=margin,
        likeliest=found,
        shortest=found,
        is_shortest=found is not None and all(row.decided and not row.wrong for row in shorter),
        tightest=of_string.get(min(least.values(), key=lambda each: each.high).string),
        errors=tuple(of_string[each.string] for each in lost),
        by_length=tuple(rows),
        method="paths of a graph",
        seconds=time.perf_counter() - started,
        reason=reason,
        stats={"strings run first": known.attempts.strings_run},
    )


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def count_wrong_strings(
    model: Any, task: AutomatonTask, lengths: Sequence[int], time_limit: float | None = None
) -> dict[int, Losing]:
    """How many strings of some lengths get a wrong answer: at least, and at most.

    Args:
        model: as of `decide_automaton`.
        task: the automaton.
        lengths: in symbols.
        time_limit: seconds for each length; numbers meet, but for rounding, if there are enough.

    Raises:
        CertifyError, UnsupportedModelError: as of `decide_automaton`.
    """
    network, _ = read_automaton(model, task, max(lengths))
    asking, found = Asking.of(network, task, max(lengths), None), {}
    for length in lengths:
        margins = asking.margins(length)
        asked = np.unique(margins.answers.answer).tolist()
        answers = [answer for answer in asked if answer != NOTHING]
        found[length] = counted(margins, length, answers, Deadline.after(time_limit))
    return found


def _verdict(
    rows: Sequence[LengthResult],
    margin: Bounds,
    found: PrefixFound | None,
    own: float,
    deadline: Deadline,
) -> tuple[Verdict, str]:
    """The status and why it is open; `own` is the margin that the model itself gives `found`."""
    if found is not None:
        if own < 0:
            return "refuted", ""
        return "open", f"the model's rounding hides that it is wrong on {found.text!r}"
    if margin.low > 0:
        return "proved", ""
    first = next(row for row in rows if not row.decided)
    if deadline.passed:
        return "open", f"not all was decided in time: length {first.length} and others were not"
    low, high = first.margin or margin
    # a word for the reason; the bounds themselves are told beside it
    tied = high - low < 1e-6 * max(1.0, abs(high))
    why = "a tie, or nearly so" if tied else "too many parts (time_limit= allows more)"
    if high == math.inf:
        why = "rounding hides every margin, as where numbers are too large"
    return "open", f"{why}: at length {first.length} the least margin is in [{low:.3g}, {high:.3g}]"


def read_automaton_claim(
    task: AutomatonTask, name: str, others: tuple[Any, ...], threshold: float | None
) -> float | None:
    """The threshold of "allowed"; None for "any_token".

    Raises:
        CertifyError: another claim, or what these two do not take.
    """
    if name not in ("any_token", "allowed") or others != (None,) * len(others):
        raise CertifyError(
            f"{task.name} is an automaton's, of which only 'any_token' and 'allowed' can be claimed"
        )
    threshold = read_threshold(name, threshold)
    return threshold if name == "allowed" else None


def read_automaton(
    model: Any, task: AutomatonTask, longest: int, *, allowed: bool = False
) -> tuple[Network, Runner]:
    """The network of a model, and the model itself, which starts with BOS or bare."""
    given = model.model_or_rnn if isinstance(model, Asker) else model
    if not isinstance(given, TwoLayerRNN):
        refuse_foreign(given)
    cfg = given.config if isinstance(given, TwoLayerRNN) else given.cfg
    bos = start_of(given, task.language)
    if cfg.d_vocab == task.language.bos_token and getattr(cfg, "language", None) is None:
        bos = None
    elif task.answer is None or allowed:
        check_predicts(given, task.language, told=True)
    else:
        check_reads(given, task.language, told=True)
    if (task.answer is None or allowed) and (named_logits(given) or 0) < len(task.symbols):
        raise CertifyError(
            f"{task.name} asks for one of {len(task.symbols)} symbols, but nothing says which of "
            f"the {cfg.d_vocab_out} logits of this model are of them; give it as many logits as "
            "tokens, or the task an answer="
        )
    network = network_of(given, bos)
    if network.config.has_position or not isinstance(given, TwoLayerRNN):
        refuse_long(cfg.n_ctx, longest, int(bos is not None))
    asked_at = task.asked[0] if task.asked is not None and network.ahead else None
    return network, Runner(given, bos, asked_at)


def _row(prefixes: int, known: Anytime, length: int, worst: PrefixFound | None) -> LengthResult:
    least, (low, high) = known.least(length), known.wrong(length)
    return LengthResult(
        length=length,
        prefixes=prefixes,
        decided=low == high,
        wrong=low,
        error=Bounds(low / prefixes, high / prefixes),
        margin=Bounds(least.low, least.high),
        worst=worst,
    )


def shown(
    asked: Asking | Strings, model: Any, threshold: float | None, least: Least, logits: Array
) -> PrefixFound:
    """A string with what the model itself makes of it.

    Args:
        asked: whose string it is.
        model: whose logits have names, or have none.
        threshold: of the claim "allowed"; None for "any_token".
        least: the string, its margin and what should be said.
        logits: what is said.
    """
    assert least.string is not None
    task, length, named = asked.task, len(least.string), named_logits(model)

    def name(logit: int) -> str:
        if task.answer is not None and logit >= min(named or 0, task.language.d_vocab):
            return f"answer {logit}"
        return logit_name(task.language, named, logit)

    if threshold is None:
        may_follow: tuple[str, ...] = (name(least.answer),)
        predicted = name(int(logits.argmax()))
    else:
        symbols = zip(task.symbols, asked.answers(length).follows(least.answer), strict=True)
        may_follow = tuple(symbol for symbol, may in symbols if may)
        predicted = said_to_follow(task.language, logits, threshold)
    return PrefixFound(
        tokens=least.string,
        log_probability=-math.log(asked.numbers[length]),
        margin=least.high,
        ending=Ending((), None),
        text=task.language.to_string(torch.tensor(least.string, dtype=torch.int64)),
        logits=tuple(logits.tolist()),
        may_follow=may_follow,
        predicted=predicted,
    )
