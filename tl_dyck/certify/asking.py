"""How users ask: one string or many, of a model or its RNN; and the checks around a certifier."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import numpy as np
import torch

from tl_dyck.certify.certificate import Certificate
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.parsing import parse_space
from tl_dyck.certify.protocol import Certifier, CertifyError, certifiers
from tl_dyck.certify.spaces import Edit, PerturbationSpace, Tokens, as_tokens
from tl_dyck.certify.symbols import Symbols
from tl_dyck.environment import one_thread
from tl_dyck.language import DyckLanguage
from tl_dyck.processes import Sent, Watched
from tl_dyck.reading import check_reads
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.rnn.text import text_to_tokens

__all__ = ["Asker", "certify", "certify_each", "certify_many"]


def certify(
    model_or_rnn: Any,
    tokens: Tokens | str,
    target: int | str | None,
    space: PerturbationSpace | str,
    certifier: str | Certifier = "exact",
    *,
    time_limit: float | None = None,
    tight: bool = False,
    beyond_n_ctx: bool = False,
    **options: Any,
) -> Certificate:
    """Does the target stay the largest logit at the last position, on every string of a space?

    >>> from tl_dyck import construct, load_task
    >>> model = construct.uniform_attention(load_task("dyck-2-4").language)
    >>> certify(model, "[()[]", "]", "pairs:1").status
    'certified'

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
        beyond_n_ctx: allow strings longer than n_ctx; for an RNN without positions, since models
            refuse to read them.
        options: of the certifier.

    Returns:
        The certificate. "falsified" carries a string of the space on which the *model* (not only
        the RNN) prefers another logit.

    Raises:
        CertifyError: an empty string, a token or target out of range, or strings that the model
            cannot read.
        UnknownNameError: no such certifier.
    """
    asker = Asker.of(model_or_rnn)
    run = certifiers.resolve(certifier)
    return asker.ask(
        tokens, target, space, run, time_limit, beyond_n_ctx, with_tight(tight, options)
    )


def certify_many(
    model_or_rnn: Any,
    strings: Iterable[Tokens | str],
    targets: Sequence[int | str | None] | None,
    space: PerturbationSpace | str,
    certifier: str | Certifier = "exact",
    *,
    n_jobs: int = 1,
    progress: bool = False,
    **options: Any,
) -> list[Certificate]:
    """Certify many strings against one space; as `certify`, but work on the model is done once.

    Args:
        model_or_rnn: see `certify`.
        strings: the strings.
        targets: one per string; None for the model's own predictions.
        space: see `certify`.
        certifier: see `certify`.
        n_jobs: worker processes (as joblib counts them: -1 for one per core), at most one for two
            strings.
        progress: whether to show a progress bar.
        options: `time_limit` (seconds *per string*), `tight`, `beyond_n_ctx` and the certifier's
            own; see `certify`.

    Returns:
        Certificates in the order of the strings.
    """
    given = list(strings)
    certificates = certify_each(
        model_or_rnn, given, targets, space, certifier, n_jobs=n_jobs, **options
    )
    if not progress:
        return list(certificates)
    from rich.progress import track

    return list(track(certificates, "certifying", total=len(given)))


def certify_each(
    model_or_rnn: Any,
    strings: Iterable[Tokens | str],
    targets: Sequence[int | str | None] | None,
    space: PerturbationSpace | str,
    certifier: str | Certifier = "exact",
    *,
    time_limit: float | None = None,
    tight: bool = False,
    beyond_n_ctx: bool = False,
    n_jobs: int = 1,
    **options: Any,
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
    # looked up here, since a worker does not know what this script has registered
    run = certifiers.resolve(certifier)
    rest = space, run, time_limit, beyond_n_ctx, with_tight(tight, options)
    pairs = list(zip(every, wanted, strict=True))
    if n_jobs == 1:
        return (asker.ask(tokens, target, *rest) for tokens, target in pairs)
    import joblib

    work, n_jobs = Watched.by_this_process(_ask_all), joblib.effective_n_jobs(n_jobs)
    sent = Sent((asker, *rest))
    parcels = [joblib.delayed(work)(sent, pairs[part]) for part in _parcels(len(pairs), n_jobs)]
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        workers = min(n_jobs, max(1, len(parcels)))
        # parcels are as large as they should be: joblib's own batches would join the last ones
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator", batch_size=1)
        answers = parallel(parcels)
    return (certificate for answer in answers for certificate in answer)


_LEAST, _MOST = 2, 64  # strings in a parcel: sending one takes about as long as a tenth of a string


def _parcels(n: int, n_jobs: int) -> list[slice]:
    """Parts of n strings, each a third of each worker's share of what is left.

    So the last ones are small, and no worker waits long for another (guided self-scheduling,
    Polychronopoulos and Kuck 1987).
    """
    parts: list[slice] = []
    while (start := parts[-1].stop if parts else 0) < n:
        size = min(max(-(-(n - start) // (3 * n_jobs)), _LEAST), _MOST)
        parts.append(slice(start, min(start + size, n)))
    return parts


def _ask_all(sent: Sent, pairs: Sequence[tuple[Tokens, int | str | None]]) -> list[Certificate]:
    asker, *rest = sent.value
    return [asker.ask(tokens, target, *rest) for tokens, target in pairs]


@final
class Asker:
    """A model, its RNN in float64, and the checks around a certifier.

    The RNN is exported when the asker is made; of a model that has changed since, make another.

    Args:
        model_or_rnn: a `TwoLayerRNN`, or any model that `tl_dyck.rnn.export_rnn` accepts.
    """

    def __init__(self, model_or_rnn: Any) -> None:
        self.model = None if isinstance(model_or_rnn, TwoLayerRNN) else model_or_rnn
        rnn = model_or_rnn if self.model is None else export_rnn(model_or_rnn)
        if rnn.dtype != torch.float64 or rnn.device.type != "cpu":
            rnn = copy.deepcopy(rnn).to(device="cpu", dtype=torch.float64)
        self.rnn: TwoLayerRNN = rnn

    @property
    def asked(self) -> Any:
        """The model, or the RNN if that is what was given."""
        return self.rnn if self.model is None else self.model

    @classmethod
    def of(cls, model_or_rnn: Any) -> Asker:
        """The asker of a model or RNN; an asker is its own."""
        return model_or_rnn if isinstance(model_or_rnn, cls) else cls(model_or_rnn)

    def read(self, tokens: Tokens | str) -> tuple[int, ...]:
        """A string as tokens, from its text if need be."""
        if isinstance(tokens, str):
            return tuple(text_to_tokens(self.rnn.config, tokens, prepend_bos=False))
        return as_tokens(tokens)

    def without_bos(self, tokens: Tokens | str) -> tuple[int, ...]:
        """A string without the BOS that it may start with."""
        given = self.read(tokens)
        return given[1:] if given and given[0] == self.rnn.config.bos_token else given

    def rnn_logits(self, string: tuple[int, ...]) -> list[float]:
        """The RNN's logits after a string without BOS.

        Raises:
            CertifyError: they are not finite.
        """
        bos = self.rnn.config.bos_token
        return _finite(_last_logits(self.rnn, string if bos is None else (bos, *string)), string)

    # matrices are small: more threads make it slower, and wait for one another on a busy machine
    @one_thread()
    def ask(
        self,
        tokens: Tokens | str,
        target: int | str | None,
        space: PerturbationSpace | str,
        certifier: Certifier,
        time_limit: float | None,
        beyond_n_ctx: bool,
        options: dict[str, Any],
    ) -> Certificate:
        """See `certify`."""
        started = time.perf_counter()
        given, string = self.read(tokens), self.without_bos(tokens)
        if isinstance(space, str):
            known = getattr(getattr(self.asked, "cfg", None), "language", None)
            space = parse_space(space, language=known)
        prefix = given[: len(given) - len(string)]
        self._check(string, space, time_limit, beyond_n_ctx)
        target = self._target(string, target)
        certificate = certifier(self.rnn, string, target, space, time_limit=time_limit, **options)
        if not isinstance(certificate, Certificate):
            raise TypeError(
                f"certifier {getattr(certifier, '__qualname__', certifier)} returned a "
                f"{type(certificate).__name__}, not a Certificate."
            )
        objectives = Objectives.wanted(
            options.get("objectives"), target, self.rnn.config.d_vocab_out
        )
        certificate = self._confirmed(certificate, string, space, objectives)
        worst = certificate.worst
        if worst is not None:
            edits = tuple(_shifted(edit, len(prefix)) for edit in worst.edits)
            worst = dataclasses.replace(worst, tokens=prefix + worst.tokens, edits=edits)
        symbols, seconds = Symbols.of(self.rnn.config), time.perf_counter() - started
        return dataclasses.replace(
            certificate, tokens=given, worst=worst, symbols=symbols, seconds=seconds
        )

    def _check(
        self,
        string: tuple[int, ...],
        space: PerturbationSpace,
        time_limit: float | None,
        beyond_n_ctx: bool,
    ) -> None:
        config = self.rnn.config
        if not isinstance(space, PerturbationSpace):
            raise TypeError(
                f"space must be a PerturbationSpace, not {space!r}; see parse_space for texts."
            )
        if time_limit is not None and not time_limit > 0:
            raise CertifyError(f"time_limit must be positive (or None), not {time_limit!r}.")
        if not string:
            raise CertifyError(
                "an empty string cannot be certified; give at least one token besides BOS."
            )
        for transformation, _ in space.transformations:
            language = getattr(transformation, "language", None)
            if isinstance(language, DyckLanguage):
                check_reads(self.asked, language, told=True)
        lattice = space.lattice(string)
        every = (*string, *(token for option in lattice.options for token in option.emits))
        if not 0 <= min(every) <= max(every) < config.d_vocab:
            wrong = next(token for token in every if not 0 <= token < config.d_vocab)
            where = "the string" if wrong in string else f"the space {space}"
            raise CertifyError(
                f"token {wrong} of {where} is not in the vocabulary 0..{config.d_vocab - 1}."
            )
        bos = config.bos_token is not None
        shortest, longest = lattice.length_bounds()
        if shortest == 0 or longest + bos > config.n_ctx:  # then see exactly
            shortest, longest = lattice.length_range()
        if shortest == 0 and not bos:
            raise CertifyError(
                f"the space {space} holds the empty string, on which a model without BOS has no "
                "logits; lower the budget of deletions, or protect a word from them."
            )
        beyond_n_ctx = beyond_n_ctx and self.model is None and not config.has_position
        if longest + bos > config.n_ctx and not beyond_n_ctx:
            asked = "" if self.model is None else "certify its RNN (tl_dyck.rnn.export_rnn) and "
            hint = (
                ""
                if config.has_position
                else f" or {asked}pass beyond_n_ctx=True (the model has no positions)"
            )
            raise CertifyError(
                f"the space {space} holds strings of {longest + bos} tokens (BOS included), but "
                f"the model reads {config.n_ctx} (n_ctx); shorten the string, "
                f"lower the budgets{hint}."
            )

    def _target(self, string: tuple[int, ...], target: int | str | None) -> int:
        if isinstance(target, str):
            target = Symbols.of(self.rnn.config).index(target)
        if target is None:
            return int(np.argmax(_finite(self.logits(string), string)))
        if isinstance(target, bool) or not isinstance(target, int | np.integer):
            raise TypeError(f"target must be the index of a logit, not {target!r}.")
        if not 0 <= target < self.rnn.config.d_vocab_out:
            raise CertifyError(
                f"target {target} is not one of the {self.rnn.config.d_vocab_out} logits."
            )
        if self.rnn.config.d_vocab_out == 1:
            raise CertifyError(
                "the model has a single logit, so nothing can be larger; "
                "there is nothing to certify."
            )
        return int(target)

    def logits(self, string: tuple[int, ...]) -> list[float]:
        """Of the original model, where there is one."""
        bos = self.rnn.config.bos_token
        return _last_logits(self.asked, string if bos is None else (bos, *string))

    def _confirmed(
        self,
        certificate: Certificate,
        string: tuple[int, ...],
        space: PerturbationSpace,
        objectives: Objectives,
    ) -> Certificate:
        """Look for the worst string in the space, and run the model on it: the one place for both.

        Adds the edits and the model's logits; a "falsified" that the model does not confirm is
        withdrawn.

        Raises:
            CertifyError: the string is not in the space.
        """
        worst = certificate.worst
        if worst is None:
            return certificate
        edits = space.edits(string, worst.tokens)
        if edits is None:
            raise CertifyError(
                f"certifier {certificate.certifier!r} returned the string {worst.tokens}, which is "
                f"not in the space {space}."
            )
        logits = tuple(self.logits(worst.tokens))
        margin = objectives.least(np.array(logits))
        worst = dataclasses.replace(worst, edits=edits, logits=logits, margin=margin)
        if certificate.status == "falsified" and not margin < 0:
            reason = (
                f"the exact margin of {worst.tokens} is {certificate.upper:.3g}, but the model "
                f"computes {margin:.3g}: its rounding hides the error"
            )
            return dataclasses.replace(certificate, status="unknown", worst=worst, reason=reason)
        return dataclasses.replace(certificate, worst=worst)


def _last_logits(model: Any, tokens: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        if isinstance(model, TwoLayerRNN):
            last = model.last_logits(torch.tensor([tokens], device=model.device))[0]
        else:
            device = next(iter(model.state_dict().values())).device
            last = model(torch.tensor([tokens], device=device))[0, -1]
    logits: list[float] = last.double().tolist()
    return logits


def _finite(logits: list[float], string: tuple[int, ...]) -> list[float]:
    """The logits of a string, refused if they are no numbers to compare."""
    if not np.isfinite(logits).all():
        raise CertifyError(
            f"the model's logits on {string} are not finite "
            f"({logits[int(np.argmin(np.isfinite(logits)))]}), so it predicts nothing there; look "
            "for overflow in its weights or a tiny attn_scale."
        )
    return logits


def with_tight(tight: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a certifier; `tight` only if it is wanted, since not all of them know it."""
    return {**options, "tight": True} if tight else options


def _shifted(edit: Edit, by: int) -> Edit:
    return dataclasses.replace(edit, start=edit.start + by)
