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
from tl_dyck.certify.exact.loss_counts import Losing
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.language.automata import NOTHING, Answers, Least, Margins
from tl_dyck.certify.language.claims import read_threshold, said_to_follow
from tl_dyck.certify.language.lengths import first_gap, refuse_long
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.language.questions import Runner, network_of, start_of
from tl_dyck.certify.language.tally import PrefixFound
from tl_dyck.certify.language.verdict import Bounds, LanguageCertificate, LengthResult
from tl_dyck.certify.objectives import Objectives
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
    until: str,
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
            "likeliest", for the least margins alone; "refuted" ends at the first wrong length.
        deadline: when to stop.
        tell: is told the share of the work done.

    Raises:
        CertifyError: the model reads other tokens or shorter strings, or lacks an answer.
        UnsupportedModelError: no such model.
    """
    started = time.perf_counter()
    network, runner = read_automaton(model, task, lengths[-1], allowed=threshold is not None)
    margins = margins_asked(network, task, lengths[-1], threshold)
    answers = margins.answers
    asking = answers.asking(lengths[-1], bare=not network.prefix)
    gap = first_gap(asking, lengths, "any_token", task.name)
    exact = until != "refuted"
    rows: list[LengthResult] = []
    least: dict[int, Least] = {}
    for length in lengths:
        if not asking[length]:
            continue
        least[length] = Least(low=-math.inf)
        if not deadline.passed:
            least[length] = margins.least(length, deadline, decide=not exact)
        counted = until == "counted" and least[length].high < 0
        wrong = _wrong(margins, length, least[length], deadline) if counted else None
        rows.append(_row(length, asking[length], least[length], wrong))
        tell(len(rows) / len(lengths))
        if rows[-1].wrong and not exact:
            break
    tell(1.0)
    shown = partial(_shown, task, runner, margins, threshold)
    lost = next((item for item in least.items() if item[1].high < 0), None)
    found, own = shown(lost)
    every = [Least(), *least.values()]
    margin = Bounds(min(each.low for each in every), min(each.high for each in every))
    status, reason = _verdict(rows, margin, found, own, deadline)
    worst = [shown((length, each))[0] for length, of in least.items() for each in of.lost]
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
        is_shortest=lost is not None and all(row.decided for row in rows if row.length < lost[0]),
        tightest=shown(min(least.items(), key=lambda item: item[1].high, default=None))[0],
        errors=tuple(each for each in worst if each is not None),
        by_length=tuple(rows),
        method="paths of a graph",
        seconds=time.perf_counter() - started,
        reason=reason,
    )


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
    why = "a tie, or nearly so" if high - low < 1e-6 * max(1.0, abs(high)) else "too many parts"
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


def margins_asked(
    network: Network, task: AutomatonTask, longest: int, threshold: float | None
) -> Margins:
    """What must be positive after every string of an automaton up to a length.

    Raises:
        CertifyError: an answer is none of the model's logits.
    """
    answers, d_vocab_out = Answers.of(task, longest), network.config.d_vocab_out
    if threshold is not None:
        return Margins.allowed(network, answers, threshold)
    most = int(answers.answer.max())
    if most >= d_vocab_out or d_vocab_out < 2:
        raise CertifyError(
            f"{task.name} asks for answer {most}, but the model has {d_vocab_out} logits"
        )
    return Margins(network, answers, lambda each: Objectives.margins(each, d_vocab_out))


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
    return network, Runner(given, bos)


def _wrong(margins: Margins, length: int, least: Least, deadline: Deadline) -> Losing:
    """How many strings of a length are wrong, state by state."""
    asking = np.flatnonzero(np.isin(margins.answers.answer, least.doubtful))
    each = [margins.wrong(length, state, deadline) for state in asking.tolist()]
    return Losing(*np.array(each, dtype=object).sum(0))


def _row(length: int, prefixes: int, least: Least, wrong: Losing | None) -> LengthResult:
    low, high = (0, 0) if least.low > 0 else (0, prefixes)
    if wrong is not None:
        low, high = wrong
    low = max(low, int(least.high < 0))
    return LengthResult(
        length=length,
        prefixes=prefixes,
        decided=low == high,
        wrong=low,
        error=Bounds(low / prefixes, high / prefixes),
        margin=Bounds(least.low, least.high),
    )


def _shown(
    task: AutomatonTask,
    runner: Runner,
    margins: Margins,
    threshold: float | None,
    where: tuple[int, Least] | None,
) -> tuple[PrefixFound | None, float]:
    """A string with what the model itself makes of it, and the margin that it gives it."""
    if where is None or where[1].string is None:
        return None, math.inf
    length, least = where
    assert least.string is not None
    logits = np.array(runner.logits(least.string))
    named = named_logits(runner.model)

    def name(logit: int) -> str:
        if task.answer is not None and logit >= min(named or 0, task.language.d_vocab):
            return f"answer {logit}"
        return logit_name(task.language, named, logit)

    answers = margins.answers
    if threshold is None:
        may_follow: tuple[str, ...] = (name(least.answer),)
        predicted = name(int(logits.argmax()))
    else:
        symbols = zip(task.symbols, answers.follows(least.answer), strict=True)
        may_follow = tuple(symbol for symbol, may in symbols if may)
        predicted = said_to_follow(task.language, logits, threshold)
    numbers = answers.numbers(length)[answers.answer != NOTHING].sum()
    found = PrefixFound(
        tokens=least.string,
        log_probability=-math.log(numbers),
        margin=least.high,
        ending=Ending((), None),
        text=task.language.to_string(torch.tensor(least.string, dtype=torch.int64)),
        logits=tuple(logits.tolist()),
        may_follow=may_follow,
        predicted=predicted,
    )
    return found, margins.objectives(least.answer).least(logits)
