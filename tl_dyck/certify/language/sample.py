"""`sample_error`: how probable an error is where not all can be decided, from a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, SupportsIndex

import torch

from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.language.automaton_certificate import read_automaton_claim
from tl_dyck.certify.language.automaton_sample import Judge, judge_of
from tl_dyck.certify.language.lengths import lengths_asked
from tl_dyck.certify.language.questions import Asked, Head, ask
from tl_dyck.certify.language.runner import Tokens
from tl_dyck.certify.language.verdict import Bounds, SampledError
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.intervals import share
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_number, check_seed, check_time_limit
from tl_dyck.kit.environment import one_thread
from tl_dyck.language.symbols import needs_stack
from tl_dyck.tasks import AutomatonTask, DyckTask, load_task

_AT_ONCE = 250  # strings judged between two looks at the clock
# strings of a sample: of so many, all right, an error rate below 2.2e-6 is shown
_MOST = 10_000_000
# one statement in a billion may be wrong; closer to 1 quantiles lose their digits
_LEVEL, _LARGEST_LEVEL = 1 - 1e-9, 1 - 1e-12


@checked
@one_thread()
def sample_error(
    model_or_rnn: Any,
    task: DyckTask | AutomatonTask | str,
    lengths: SupportsIndex | Iterable[SupportsIndex],
    property: str = "any_token",
    *,
    n: SupportsIndex = 10_000,
    level: float = _LEVEL,
    seed: SupportsIndex = 0,
    epsilon: float | None = None,
    other: Any = None,
    head: Head | None = None,
    threshold: float | None = None,
    time_limit: float | None = None,
) -> tuple[SampledError, ...]:
    """Estimate how probable it is that a claim fails, with an interval at a stated level.

    That is the error of `DyckTask.closing_accuracy` at that length: for claims about the closing
    bracket prefixes are drawn given that one comes next. Of an `AutomatonTask` it is the share of
    its strings of that length, of those of which something is asked: each is as likely. Each prefix
    is judged as `certify_language` would, so that rounding is in the interval too; this is no
    proof, since prefixes are drawn.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> task = load_task("dyck-2-4")
        >>> (found,) = sample_error(construct.uniform_attention(task.language), task, 450, n=2000)
        >>> print(found)
        0, in [0, 0.0107]: sampled, 2,000 prefixes, level 1 - 1e-09

    Args:
        model_or_rnn: see `certify_language`; models of any kind.
        task: a task or its name.
        lengths: one length in brackets, or several; each of at least 1.
        property: name of the claim, see `tl_dyck.certify.language.CLAIMS`.
        n: prefixes to draw at each length.
        level: probability that an interval holds the error, for each length alone.
        seed: of the draw.
        epsilon: see `certify_language`.
        other: see `certify_language`.
        head: see `certify_language`.
        threshold: see `certify_language`.
        time_limit: seconds, after which no more prefixes are drawn; None for no limit.

    Returns:
        What was found at each length, the shortest first.

    Raises:
        ValueError: lengths, `n`, `level` or `seed` out of range.
        CertifyError: as `certify_language`; or a length at which the claim says nothing.
        UnsupportedModelError: as `certify_language`.
        UnknownNameError: no such property or task.
    """
    deadline = Deadline.after(check_time_limit(time_limit))
    wanted = lengths_asked(lengths, 1)
    n, seed = check_integer("n", n, least=1, most=_MOST), check_seed(seed)
    level = check_number("level", level, least=0, most=_LARGEST_LEVEL, above=True)
    task = load_task(task) if isinstance(task, str) else task
    judge_at: Callable[[int], Judge]
    if isinstance(task, AutomatonTask):
        above = read_automaton_claim(task, property, (epsilon, other, head), threshold)
        judge_at = judge_of(model_or_rnn, task, above, wanted[-1])
    else:
        needs_stack(task.language, "sample_error is")
        about: dict[str, Any] = {"epsilon": epsilon, "other": other, "head": head}
        asked = ask(model_or_rnn, task, property, wanted[-1], **about, threshold=threshold)
        judge_at = partial(_judge_of, asked)
    judges = [judge_at(length) for length in wanted]
    return tuple(
        draw_errors(judge, length, n, deadline, level, seed)
        for judge, length in zip(judges, wanted, strict=True)
    )


def _judge_of(asked: Asked, length: int) -> Judge:
    """Draws prefixes of a length and judges them."""
    _refuse_silent(asked, length)

    def judge(n: int, generator: torch.Generator, deadline: Deadline) -> tuple[int, int]:
        bad = open_ = 0
        for judged in asked.judged(_draw(asked, n, length, generator)):
            deadline.check()
            bad += int(judged.wrong.sum())
            open_ += int(judged.doubtful.sum())
        return bad, open_

    return judge


def draw_errors(
    judge: Judge, length: int, n: int, deadline: Deadline, level: float = _LEVEL, seed: int = 0
) -> SampledError:
    """Draw and judge so many strings of a length, as long as there is time."""
    generator = torch.Generator().manual_seed(seed)
    wrong = doubtful = drawn = 0
    while drawn < n and not deadline.passed:
        at_once = min(_AT_ONCE, n - drawn)
        try:
            bad, open_ = judge(at_once, generator, deadline)
        except OutOfTime:  # what was begun counts for nothing, or the quick ones would count more
            break
        wrong, doubtful, drawn = wrong + bad, doubtful + open_, drawn + at_once
    error = Bounds(0.0, 1.0)
    if drawn:
        # the lower end as if no doubtful one were wrong, the upper end as if all were
        low, high = (share(k, drawn, level=level) for k in (wrong, wrong + doubtful))
        error = Bounds(low.low, high.high)
    counts = {"n": drawn, "wrong": wrong, "doubtful": doubtful}
    return SampledError(length=length, error=error, level=level, seed=seed, **counts)


def _draw(asked: Asked, n: int, length: int, generator: torch.Generator) -> Tokens:
    """Prefixes as the claim weighs them: all, or given that a closing bracket comes next."""
    law = asked.task.distribution
    if asked.claim.closing:
        # one bracket longer, which closes; it is what is asked for, so it is cut off
        drawn = law.sample_ending_in_close(n, length + 1, mode="prefix", generator=generator)
        return drawn[:, :-1].numpy()
    return law.sample(n, length, mode="prefix", generator=generator).numpy()


def _refuse_silent(asked: Asked, length: int) -> None:
    """Refuse a length at which the claim speaks of no prefix."""
    deepest = asked.task.language.max_depth
    # after an even number of brackets an even number is open
    depths = range(length % 2, min(length, deepest) + 1, 2)
    if not any(asked.claim.speaks_of(depth) for depth in depths):
        raise CertifyError(
            f"{asked.name} says nothing of prefixes of {length} brackets of {asked.task.language}; "
            "ask for another length, or of another claim"
        )
