"""Where the two papers meet: trained one-layer Dyck models against inserted matched pairs.

Wen et al. 2023, Theorem 1: if (and only if) a model is balanced, inserting matched pairs anywhere
before a closing bracket leaves the attention's direction there unchanged. So a model that has
learnt the language the way the theorem describes must not change its prediction, nor any logit,
under `InsertMatchedPairs`; how much it does is an exact, behavioural counterpart of the balance
violation β.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.certify.certificate import Certificate
from tl_dyck.certify.change import LogitChange, worst_logit_change
from tl_dyck.certify.display import Shown
from tl_dyck.certify.edits import certify_each
from tl_dyck.certify.protocol import Certifier, CertifyError
from tl_dyck.certify.questions import Asker
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import InsertMatchedPairs
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_draws, check_seed, shown
from tl_dyck.kit.environment import one_thread, said_with
from tl_dyck.kit.registry import unknown_name
from tl_dyck.kit.verdicts import VERDICTS, as_verdict
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.alphabet import Symbols
from tl_dyck.language.symbols import needs_stack
from tl_dyck.reading.inputs import check_predicts
from tl_dyck.tasks.protocol import is_task


@final
@dataclass(frozen=True, kw_only=True)
class DyckCertificate:
    """One prefix.

    Attributes:
        prefix: its brackets, as text.
        target: the closing bracket that must follow, as text.
        certificate: does the model prefer it on every string of the space? Its tokens are written
            as brackets.
        change: how far any logit moves.
    """

    prefix: str
    target: str
    certificate: Certificate
    change: LogitChange

    def to_dict(self) -> dict[str, Any]:
        """One flat row, for a table."""
        worst = self.certificate.worst  # a certifier of a third party need not name one
        text = self.certificate.symbols.text
        return {
            "prefix": self.prefix,
            "target": self.target,
            "status": self.certificate.status,
            "margin_proved": self.certificate.lower,
            "margin_seen": self.certificate.upper,
            "worst_string": text(worst.tokens) if worst else None,
            "worst_edits": self.certificate.marked() if worst else None,
            "logit_change_proved": self.change.proved,
            "logit_change_seen": self.change.seen,
            "most_changed_string": text(self.change.worst.tokens),
            "seconds": self.certificate.seconds + self.change.seconds,
        }


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class DyckCertificates(Shown):
    """Certificates of one model on several prefixes.

    Attributes:
        language: the language.
        space: what was inserted.
        rows: one per prefix.
    """

    _unsaid = ("space",)
    _derived = ("made_with",)

    language: DyckLanguage
    space: PerturbationSpace
    rows: tuple[DyckCertificate, ...]

    def summary(self) -> list[tuple[str, str]]:
        """What there is to say, as names and texts; the first is the status."""
        changed, proved = self.worst_change, self.worst_change_proved
        rows = [
            ("status", ", ".join(f"{status} {self.share(status):.0%}" for status in VERDICTS)),
            ("prefixes", str(len(self.rows))),
            ("space", str(self.space)),
            ("logits change", f"by {changed:.3g} at most seen, {proved:.3g} proved"),
        ]
        if self.counterexample is not None:
            rows.append(("worst on", self.counterexample.prefix))
        if self.made_with:
            rows.append(("computed", said_with(self.made_with)))
        return rows

    @property
    def made_with(self) -> Mapping[str, str]:
        """See `Certificate.made_with`."""
        return self.rows[0].certificate.made_with if self.rows else {}

    @checked
    def share(self, status: str) -> float:
        """Share of prefixes with that status: "proved", "refuted" or "open".

        Raises:
            UnknownNameError: no such status.
        """
        if status not in VERDICTS:
            try:
                status = as_verdict(status)
            except ValueError:
                raise unknown_name("status", status, VERDICTS) from None
        return sum(row.certificate.status == status for row in self.rows) / len(self.rows)

    @property
    def worst_margin(self) -> float:
        """The least margin proved on any prefix."""
        return min(row.certificate.lower for row in self.rows)

    @property
    def worst_change(self) -> float:
        """The largest change of a logit seen on a prefix; exact if `worst_change_proved` is it."""
        return max(row.change.seen for row in self.rows)

    @property
    def worst_change_proved(self) -> float:
        """A bound of the change of any logit on all prefixes."""
        return max(row.change.proved for row in self.rows)

    @property
    def counterexample(self) -> DyckCertificate | None:
        """The refuted prefix with the most negative margin, if there is one."""
        refuted = [row for row in self.rows if row.certificate.status == "refuted"]
        return min(refuted, key=lambda row: row.certificate.upper, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the space is its text."""
        return {"space": str(self.space), **super().to_dict()}

    def to_rows(self) -> list[dict[str, Any]]:
        """Flat rows, ready for `pandas.DataFrame`."""
        return [row.to_dict() for row in self.rows]


def closing_prefixes(
    language: DyckLanguage, n: int, length: int, *, generator: torch.Generator
) -> Int[Tensor, "n length"]:
    """Draw distinct prefixes whose last bracket closes and whose next bracket may close, too.

    These are the ones that the theorem speaks about: the query is a closing bracket, and some open
    bracket is left for the model to get right. They are drawn from D(1/2, k, D), given that. If
    there are fewer, or they are too rare to be found, it is a CertifyError.
    """
    distribution = DyckDistribution(language)
    found: dict[tuple[int, ...], None] = {}
    # 50 draws of 4 n: where fewer than one in 200 is new, prefixes of that kind are too few
    for _ in range(50):
        drawn = distribution.sample_ending_in_close(
            4 * n, length, mode="prefix", generator=generator
        )
        deep = drawn[language.depth(drawn)[:, -1] > 0]
        found.update(dict.fromkeys(tuple(row) for row in deep.tolist()))
        if len(found) >= n:
            return torch.tensor(list(found)[:n], dtype=torch.int64)
    raise CertifyError(
        f"found only {len(found)} of {n} distinct prefixes of length {length} that end with a "
        "closing bracket and leave one open; ask for fewer, or for longer ones."
    )


@checked
@one_thread()
def certify_dyck(
    model_or_rnn: Any,
    task: Any,
    *,
    prefixes: Int[Tensor, "n pos"] | Sequence[Sequence[int]] | None = None,
    n: int = 16,
    length: int = 13,
    budget: int = 2,
    seed: int = 0,
    certifier: str | Certifier = "exact",
    time_limit: float | None = 10.0,
) -> DyckCertificates:
    """Certify a one-layer model against insertions of matched pairs before the last bracket.

    Args:
        model_or_rnn: as for `certify_edits`, and exported once; its tokens are the language's, BOS
            first.
        task: a `DyckTask`, or anything with a `language`.
        prefixes: strings of brackets, each with an open bracket left; None to draw
            `closing_prefixes`.
        n: how many to draw.
        length: of those drawn.
        budget: most blocks inserted, each of at most D pairs.
        seed: of the drawing.
        certifier: one that accepts `objectives` and `tight` (see `Certifier`), or its name.
        time_limit: seconds per prefix and question.
    """
    if not is_task(task):
        raise WrongTypeError(
            f"task must be one of brackets, such as load_task('dyck-2-4'), got {shown(task)}"
        )
    language = needs_stack(task.language, "certify_dyck is")
    if prefixes is None:
        generator = torch.Generator().manual_seed(check_seed(seed))
        prefixes = closing_prefixes(language, check_draws(n), length, generator=generator)
    if not len(prefixes):
        raise WrongValueError("prefixes must be at least one, got none")
    space = PerturbationSpace([(InsertMatchedPairs(language), budget)])
    n_brackets = language.n_brackets
    brackets = Symbols(language.alphabet, "", language.bos_token, logits=n_brackets)
    strings = [torch.as_tensor(prefix, dtype=torch.int64) for prefix in prefixes]
    strings = [tokens[tokens != language.bos_token] for tokens in strings]
    targets = [_closing_bracket(language, tokens) for tokens in strings]
    asker = Asker.of(model_or_rnn)  # one export for all prefixes
    check_predicts(asker.model_or_rnn, language)
    how: dict[str, Any] = {"certifier": certifier, "time_limit": time_limit}
    rows = tuple(
        DyckCertificate(
            prefix=brackets.text(tokens.tolist()),
            target=brackets.text([certificate.target]),
            certificate=certificate.with_symbols(brackets),
            change=worst_logit_change(asker, tokens, space, **how),
        )
        for tokens, certificate in zip(
            strings, certify_each(asker, strings, targets, space, **how), strict=True
        )
    )
    return DyckCertificates(language=language, space=space, rows=rows)


def _closing_bracket(language: DyckLanguage, tokens: Tensor) -> int:
    """The closing bracket that may follow a prefix."""
    right = int(language.right_bracket(tokens)[-1]) if len(tokens) else -1
    if right < 0 or not bool(language.is_prefix(tokens)):
        raise CertifyError(
            f"{language.to_string(tokens)!r} leaves no bracket open (or is no prefix of the "
            "language), so no closing bracket must follow; choose another prefix."
        )
    return right
