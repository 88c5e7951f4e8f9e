"""How users ask: one string or many, of a model or its RNN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, starmap
from typing import Any

from tl_dyck.certify.certificate import Certificate
from tl_dyck.certify.protocol import Certifier, CertifyError
from tl_dyck.certify.questions import Asker
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import Tokens
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_several
from tl_dyck.kit.workers import check_jobs, spread


@checked
def certify_edits(
    model_or_rnn: Any,
    tokens: Tokens | str,
    target: int | str | None,
    space: PerturbationSpace | str,
    certifier: str | Certifier = "exact",
    *,
    time_limit: float | None = None,
    tight: bool = False,
    **options: Any,
) -> Certificate:
    """Does the target stay the largest logit at the last position, on every string of a space?

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> model = construct.uniform_attention(load_task("dyck-2-4").language)
        >>> certify_edits(model, "[()[]", "]", "pairs:1").status
        'proved'

    Args:
        model_or_rnn: a `TwoLayerRNN`, any model that `tl_dyck.rnn.export_rnn` accepts, or an
            `Asker` of either, which saves the export if the same model is asked about several
            times.
        tokens: the string, or its text if the model has an alphabet. If the model reads a BOS
            first, the string may start with one or not; it is not edited.
        target: index of a logit, or its token's text; None for the one that is largest on `tokens`.
        space: the strings to certify against; or its text, such as "pairs:2", if no more is needed
            than the model's language (`parse_space`).
        certifier: name of a certifier, or the certifier itself.
        time_limit: seconds, after which the best bound so far is returned; None for no limit.
        tight: find the least margin, not only its sign.
        options: of the certifier.

    Returns:
        The certificate. "refuted" carries a string of the space on which the *model* (not only
        the RNN) prefers another logit.

    Raises:
        CertifyError: an empty string, a token or target out of range, or strings that the model
            cannot read.
        UnknownNameError: no such certifier.
    """
    asker = Asker.of(model_or_rnn)
    question = asker.question(space, certifier, time_limit=time_limit, tight=tight, **options)
    return asker.answer(question, tokens, target)


@checked
def certify_many(
    model_or_rnn: Any,
    strings: Iterable[Tokens | str],
    targets: Sequence[int | str | None] | None,
    space: PerturbationSpace | str,
    certifier: str | Certifier = "exact",
    *,
    n_jobs: int = 1,
    progress: bool = False,
    **how: Any,
) -> list[Certificate]:
    """Certify many strings against one space: `certify_edits`, with work on the model done once.

    Args:
        model_or_rnn: see `certify_edits`.
        strings: the strings; of none there are no certificates.
        targets: one per string; None for the model's own predictions.
        space: see `certify_edits`.
        certifier: see `certify_edits`.
        n_jobs: worker processes, see `tl_dyck.kit.workers.check_jobs`; of them at most one for two
            strings.
        progress: whether to show a progress bar.
        how: `time_limit` (seconds *per string*), `tight` and the certifier's options; see
            `certify_edits`.

    Returns:
        Certificates in the order of the strings: one each, so an empty list of no strings, whose
        model, space and certifier are looked at all the same.
    """
    given = check_several("strings", strings)
    certificates = certify_each(
        model_or_rnn, given, targets, space, certifier, n_jobs=n_jobs, **how
    )
    from tl_dyck.kit.screen import counted

    return list(counted(certificates, "certifying", len(given), enabled=progress))


@checked
def certify_each(
    model_or_rnn: Any,
    strings: Iterable[Tokens | str],
    targets: Sequence[int | str | None] | None,
    space: PerturbationSpace | str,
    certifier: str | Certifier = "exact",
    *,
    n_jobs: int = 1,
    **how: Any,
) -> Iterator[Certificate]:
    """As `certify_many`, but one certificate after the other.

    Each comes as soon as it and those before it are there.
    """
    asker = Asker.of(model_or_rnn)
    every = [asker.read(tokens) for tokens in strings]
    wanted: list[int | str | None] = [None] * len(every) if targets is None else list(targets)
    if len(wanted) != len(every):
        raise CertifyError(
            f"{len(every)} strings but {len(wanted)} targets; give one target per string."
        )
    answer = partial(asker.answer, asker.question(space, certifier, **how))
    pairs = list(zip(every, wanted, strict=True))
    jobs = check_jobs(n_jobs)
    if jobs == 1:
        return starmap(answer, pairs)
    parcels = [(pairs[part],) for part in _parcels(len(pairs), jobs)]
    answers = spread(partial(_answer_all, answer), parcels, min(jobs, max(1, len(parcels))))
    return chain.from_iterable(answers)


_LEAST, _MOST = 2, 64  # strings in a parcel: sending one takes about as long as a tenth of a string


def _parcels(n: int, n_jobs: int) -> list[slice]:
    """Parts of n strings, each a third of each worker's share of what is left.

    So the last ones are small, and no worker waits long for another (guided self-scheduling,
    Polychronopoulos and Kuck 1987).
    """
    parts: list[slice] = []
    while (start := parts[-1].stop if parts else 0) < n:
        # rounded up, so that no string is left over
        size = min(max(-(-(n - start) // (3 * n_jobs)), _LEAST), _MOST)
        parts.append(slice(start, min(start + size, n)))
    return parts


def _answer_all(
    answer: Callable[..., Certificate], pairs: Sequence[tuple[Tokens, int | str | None]]
) -> list[Certificate]:
    return list(starmap(answer, pairs))


certify = certify_edits
"""The former name, which is understood for one release more."""
