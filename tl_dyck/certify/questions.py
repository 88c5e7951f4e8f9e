"""One model, asked about one string after the other; and the checks around a certifier."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, final

import numpy as np
import torch

from tl_dyck.certify.certificate import Certificate
from tl_dyck.certify.deadline import Deadline, OutOfTime, counts_work
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import Certifier, CertifyError, certifiers
from tl_dyck.certify.space_parser import parse_space
from tl_dyck.certify.spaces import Edit, PerturbationSpace
from tl_dyck.certify.transformations import Tokens, as_tokens
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_time_limit
from tl_dyck.kit.environment import collected_later, made_with, one_thread
from tl_dyck.language import DyckLanguage
from tl_dyck.reading.inputs import check_reads, hides_bos, unwrapped
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.rnn.unsupported import refuse_weights

_SPENT = 0.05  # of a limit, before a certifier is asked: less is not worth telling it
_SCORE = 5e-8
"""Seconds that a model takes for an attention score of a head: 25 to 50 ns from 1,000 tokens on, on
an AMD EPYC. A run cannot be stopped, so that one for which there is no time is not begun."""
_STEP = 5e-6
"""and an RNN for a token and head: 2 to 5 µs, of 30,000 tokens."""
_QUICK = 0.1  # seconds that a run may take even then, to see what the model predicts
_AT_ONCE = 1e-6  # seconds that are left when a certifier is to stop at once


@final
@dataclass(frozen=True, kw_only=True)
class SpaceQuestion:
    """What is asked of every string, as `Asker.question` makes it.

    Attributes:
        space: the strings to certify against.
        certifier: which is asked.
        time_limit: seconds a string; None for no limit.
        options: of the certifier; `tight` is among them only if it is wanted, since not all of them
            know it.
    """

    space: PerturbationSpace
    certifier: Certifier
    time_limit: float | None
    options: Mapping[str, Any]


@final
@checked
class Asker:
    """A model, its RNN in float64, and the checks around a certifier.

    Weights are read when the asker is made and first asked; of a model that has changed since, make
    another.

    Args:
        model_or_rnn: a `TwoLayerRNN`, or any model that `tl_dyck.rnn.export_rnn` accepts.
    """

    def __init__(self, model_or_rnn: Any) -> None:
        self.model = None if isinstance(model_or_rnn, TwoLayerRNN) else model_or_rnn
        if self.model is None:
            refuse_weights(model_or_rnn)
        self._made_with = made_with(unwrapped(model_or_rnn))
        rnn = model_or_rnn if self.model is None else export_rnn(model_or_rnn)
        if rnn.dtype != torch.float64 or rnn.device.type != "cpu":
            rnn = copy.deepcopy(rnn).to(device="cpu", dtype=torch.float64)
        self.rnn: TwoLayerRNN = copy.copy(rnn)  # of our own, to keep the network with
        vars(self.rnn)["network"] = Network(self.rnn)

    @property
    def model_or_rnn(self) -> Any:
        """The model, or the RNN if that is what was given."""
        return self.rnn if self.model is None else self.model

    @classmethod
    @checked
    def of(cls, model_or_rnn: Any) -> Asker:
        """The asker of a model or RNN; an asker is its own."""
        return model_or_rnn if isinstance(model_or_rnn, cls) else cls(model_or_rnn)

    @checked
    def read(self, tokens: Tokens | str) -> tuple[int, ...]:
        """A string as tokens, from its text if need be."""
        if isinstance(tokens, str):
            return tuple(self.rnn.config.read(tokens, prepend_bos=False))
        return as_tokens(tokens)

    @checked
    def without_bos(self, tokens: Tokens | str) -> tuple[int, ...]:
        """A string without the BOS that it may start with."""
        given = self.read(tokens)
        return given[1:] if given and given[0] == self._bos else given

    @property
    def _bos(self) -> int | None:
        """What strings start with, of the model if there is one."""
        bos: int | None = self.rnn.config.bos_token
        return self.model_or_rnn.cfg.language.bos_token if hides_bos(self.model) else bos

    @checked
    def rnn_logits(self, string: tuple[int, ...]) -> list[float]:
        """The RNN's logits after a string without BOS.

        Raises:
            CertifyError: they are not finite.
        """
        return _finite(self._last(string, exactly=True), string)

    @checked
    def question(
        self,
        space: PerturbationSpace | str,
        certifier: str | Certifier = "exact",
        *,
        time_limit: float | None = None,
        tight: bool = False,
        **options: Any,
    ) -> SpaceQuestion:
        """What is to be asked; see `certify_edits`."""
        if isinstance(space, str):
            known = getattr(getattr(self.model_or_rnn, "cfg", None), "language", None)
            space = parse_space(space, language=known)
        if not isinstance(space, PerturbationSpace):
            raise TypeError(
                f"space must be a PerturbationSpace, not {space!r}; see parse_space for texts."
            )
        return SpaceQuestion(
            space=space,
            certifier=certifiers.resolve(certifier),
            time_limit=check_time_limit(time_limit),
            options={**options, "tight": True} if tight else options,
        )

    # matrices are small: more threads make it slower, and wait for one another on a busy machine
    @checked
    @one_thread()
    def answer(
        self, question: SpaceQuestion, tokens: Tokens | str, target: int | str | None
    ) -> Certificate:
        """The certificate of one string; see `certify_edits`."""
        with collected_later(question.time_limit):
            return self._answer(question, tokens, target)

    def _answer(
        self, question: SpaceQuestion, tokens: Tokens | str, target: int | str | None
    ) -> Certificate:
        started, deadline = time.perf_counter(), Deadline.after(question.time_limit)
        given, string = self.read(tokens), self.without_bos(tokens)
        space, certifier, options = question.space, question.certifier, question.options
        prefix = given[: len(given) - len(string)]
        left = limit = question.time_limit
        run, after = self._run_takes(len(string)), 0.0
        try:
            self._check_string(string)
            if limit is not None and run * (1 + (target is None)) > limit:
                raise OutOfTime
            self._check(string, space, deadline.sooner(run * (target is None)))
            deadline.check()
            if limit is not None and not counts_work():
                after = limit - deadline.left  # the worst string is read as edits in as much time
                if self.model is not None and run > _QUICK:
                    run = max(run, self._run_takes_here(string))
                    if run * (1 + (target is None)) > deadline.left:
                        raise OutOfTime
        except OutOfTime:
            late = run > max(_QUICK, deadline.left)
            return self._out_of_time(question, given, string, target, started, run * late)
        target = self.target(string, target)
        after += run  # so is the worst string that is found
        if limit is not None and (rest := deadline.left - after) < (1 - _SPENT) * limit:
            if rest < 0 and after > _QUICK:
                return self._out_of_time(question, given, string, target, started, run)
            left = max(rest, _AT_ONCE)
        certificate = certifier(self.rnn, string, target, space, time_limit=left, **options)
        if not isinstance(certificate, Certificate):
            raise TypeError(
                f"certifier {getattr(certifier, '__qualname__', certifier)} returned a "
                f"{type(certificate).__name__}, not a Certificate."
            )
        objectives = Objectives.wanted(
            options.get("objectives"), target, self.rnn.config.d_vocab_out
        )
        certificate = self._confirmed(certificate, string, space, objectives)
        reason = certificate.reason.replace(f"time limit of {left} s", f"time limit of {limit} s")
        worst = certificate.worst
        if worst is not None:
            edits = tuple(_shifted(edit, len(prefix)) for edit in worst.edits)
            worst = dataclasses.replace(worst, tokens=prefix + worst.tokens, edits=edits)
        symbols, seconds = self.rnn.config.symbols, time.perf_counter() - started
        return dataclasses.replace(
            certificate,
            tokens=given,
            worst=worst,
            reason=reason,
            symbols=symbols,
            seconds=seconds,
            made_with=self._made_with,
        )

    def _out_of_time(
        self,
        question: SpaceQuestion,
        given: tuple[int, ...],
        string: tuple[int, ...],
        target: int | str | None,
        started: float,
        run: float,
    ) -> Certificate:
        """What is known when the time is over before a string was run: nothing."""
        if target is None and run:
            raise CertifyError(
                f"the time limit of {question.time_limit} s is too short for a string of "
                f"{len(string):,} tokens, on which a run of the model takes about {run:.2g} s; "
                "raise it, or give the target."
            )
        return Certificate(
            status="open",
            tokens=given,
            target=self.target(string, target),
            lower=-math.inf,
            upper=math.inf,
            worst=None,
            certifier=getattr(question.certifier, "__name__", "certifier"),
            space=str(question.space),
            seconds=time.perf_counter() - started,
            reason=f"the time limit of {question.time_limit} s was reached before any string ran",
            symbols=self.rnn.config.symbols,
        )

    def _run_takes(self, length: int) -> float:
        """About how many seconds the model takes for a string."""
        if self.model is None:
            return float(self.rnn.config.n_heads * length * _STEP)
        config = getattr(unwrapped(self.model), "cfg", None)
        n_heads = getattr(config, "n_layers", 0) * getattr(config, "n_heads", 0)
        return float(n_heads * length**2 * _SCORE)

    def _run_takes_here(self, string: tuple[int, ...]) -> float:
        """The same on this machine, as busy as it is: from a run of a quarter, a sixteenth."""
        begun = time.perf_counter()
        self.logits(string[: len(string) // 4])
        # attention grows with the square of the length: a quarter of it takes a sixteenth at least
        return 16 * (time.perf_counter() - begun)

    def _check_string(self, string: tuple[int, ...]) -> None:
        config = self.rnn.config
        bos = config.bos_token is not None
        if len(string) + bos > config.n_ctx:  # before anything is done with it
            raise CertifyError(
                f"the string has {len(string) + bos} tokens (BOS included), but the model reads "
                f"{config.n_ctx} (n_ctx); shorten it."
            )
        if not string:
            raise CertifyError(
                "an empty string cannot be certified; give at least one token besides BOS."
            )

    def _check(self, string: tuple[int, ...], space: PerturbationSpace, deadline: Deadline) -> None:
        config = self.rnn.config
        bos = config.bos_token is not None
        for transformation, _ in space.transformations:
            language = getattr(transformation, "language", None)
            if isinstance(language, DyckLanguage):
                check_reads(self.model_or_rnn, language, told=True)
        lattice = space.lattice(string, deadline)
        every = [*string, *chain.from_iterable(option.emits for option in lattice.options)]
        if not 0 <= min(every) <= max(every) < config.d_vocab:
            wrong = next(token for token in every if not 0 <= token < config.d_vocab)
            where = "the string" if wrong in string else f"the space {space}"
            raise CertifyError(
                f"token {wrong} of {where} is not in the vocabulary 0..{config.d_vocab - 1}."
            )
        shortest, longest = lattice.length_bounds()
        if shortest == 0 or longest + bos > config.n_ctx:  # then see exactly
            shortest, longest = lattice.length_range()
        if shortest == 0 and not bos:
            raise CertifyError(
                f"the space {space} holds the empty string, on which a model without BOS has no "
                "logits; lower the budget of deletions, or protect a word from them."
            )
        if longest + bos > config.n_ctx:
            raise CertifyError(
                f"the space {space} holds strings of {longest + bos} tokens (BOS included), but "
                f"the model reads {config.n_ctx} (n_ctx); shorten the string or lower the budgets."
            )

    @checked
    def target(self, string: tuple[int, ...], target: int | str | None) -> int:
        """A target as a logit: of its text; for None, what is predicted after a string.

        Raises:
            CertifyError: it is none of the logits, or there is only one.
            UnknownNameError: no logit has that text.
        """
        if self.rnn.config.d_vocab_out == 1:
            raise CertifyError(
                "the model has a single logit, so nothing can be larger; "
                "there is nothing to certify."
            )
        if isinstance(target, str):
            target = self.rnn.config.symbols.index(target)
        if target is None:
            return int(np.argmax(_finite(self.logits(string), string)))
        target = check_integer("target (the index of a logit)", target)
        if not 0 <= target < self.rnn.config.d_vocab_out:
            raise CertifyError(
                f"target {target} is not one of the {self.rnn.config.d_vocab_out} logits."
            )
        return target

    @checked
    def logits(self, string: tuple[int, ...]) -> list[float]:
        """Of the original model, where there is one."""
        return self._last(string, exactly=self.model is None)

    @torch.no_grad()
    def _last(self, string: tuple[int, ...], *, exactly: bool) -> list[float]:
        bos = self._bos if not exactly else self.rnn.config.bos_token
        tokens = torch.tensor([string if bos is None else (bos, *string)])
        if exactly:
            last = self.rnn.last_logits(tokens)[0]
        else:
            model = self.model_or_rnn
            device = next(chain(model.parameters(), model.buffers())).device
            last = model(tokens.to(device))[0, -1]
        logits: list[float] = last.double().tolist()
        return logits

    def _confirmed(
        self,
        certificate: Certificate,
        string: tuple[int, ...],
        space: PerturbationSpace,
        objectives: Objectives,
    ) -> Certificate:
        """Look for the worst string in the space, and run the model on it: the one place for both.

        Adds the edits and the model's logits; a "refuted" that the model does not confirm is
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
        if certificate.status == "refuted" and not margin < 0:
            reason = (
                f"the exact margin of {worst.tokens} is {certificate.upper:.3g}, but the model "
                f"computes {margin:.3g}: its rounding hides the error"
            )
            return dataclasses.replace(certificate, status="open", worst=worst, reason=reason)
        return dataclasses.replace(certificate, worst=worst)


def _finite(logits: list[float], string: tuple[int, ...]) -> list[float]:
    """The logits of a string, refused if they are no numbers to compare."""
    if not np.isfinite(logits).all():
        raise CertifyError(
            f"the model's logits on {string} are not finite "
            f"({logits[int(np.argmin(np.isfinite(logits)))]}), so it predicts nothing there; look "
            "for overflow in its weights or a tiny attn_scale."
        )
    return logits


def _shifted(edit: Edit, by: int) -> Edit:
    return dataclasses.replace(edit, start=edit.start + by)
