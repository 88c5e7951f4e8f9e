"""The largest change of any logit over a space, exact where the certifier is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from tl_dyck.certify.certificate import Witness
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import Certifier, CertifyError
from tl_dyck.certify.questions import Asker
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import Tokens
from tl_dyck.kit.arguments import checked


@final
@dataclass(frozen=True, kw_only=True)
class LogitChange:
    """Largest change of any logit at the last position when a string is edited.

    The largest change is over all strings and logits.

    Attributes:
        seen: some string of the space changes some logit by at least this (up to rounding).
        proved: no string changes any logit by more than this.
        worst: the string it was seen on; its `margin` is minus the change.
        seconds: wall-clock time.
    """

    seen: float
    proved: float
    worst: Witness
    seconds: float

    @property
    def low(self) -> float:
        """The largest change is at least this, which was seen."""
        return self.seen

    @property
    def high(self) -> float:
        """The largest change is at most this, which is proved."""
        return self.proved


@checked
def worst_logit_change(
    model_or_rnn: Any,
    tokens: Tokens,
    space: PerturbationSpace,
    certifier: str | Certifier = "exact",
    **how: Any,
) -> LogitChange:
    """Find the largest |logit_c(y) - logit_c(tokens)| over all logits c and strings y of a space.

    Arguments are those of `certify_edits`. The certifier must accept `objectives`; the built-in
    ones that do are "exact" (both numbers agree, to its tolerance, unless time runs out),
    "exhaustive", and "interval" (a bound alone).
    """
    asker = Asker.of(model_or_rnn)
    string = asker.without_bos(tokens)
    logits = np.array(asker.rnn_logits(string))
    how |= {"tight": True, "objectives": Objectives.changes(logits)}
    question = asker.question(space, certifier, **how)
    found = asker.answer(question, tokens, int(logits.argmax()))
    if found.worst is None:
        raise CertifyError(
            f"certifier {found.certifier!r} named no string, so no change was seen; use another."
        )
    return LogitChange(
        seen=max(0.0, -found.upper), proved=-found.lower, worst=found.worst, seconds=found.seconds
    )
