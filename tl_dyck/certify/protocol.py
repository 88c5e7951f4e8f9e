"""What a certifier is, where certifiers are registered, and how one says what it found.

A certifier is a function ``(rnn, tokens, target, space, *, time_limit, **options) -> Certificate``.
To plug one in, write it and announce it by entry point, or register it by decorator::

    def my_certifier(rnn, tokens, target, space, *, time_limit=None, objectives=None, tight=False):
        wanted = Objectives.wanted(objectives, target, rnn.config.d_vocab_out)
        lower, string = ...  # a proved lower bound of `wanted` on all strings, the worst seen
        return conclude(rnn, tokens, target, space, certifier="mine", lower=lower, string=string,
                        started=..., objectives=objectives)

    [project.entry-points."tl_dyck.certifiers"]
    mine = "my_package:my_certifier"

It is handed an RNN in float64 and a string without BOS that `certify_edits` has checked. Whatever
it claims to be the worst string, `certify_edits` checks: by the space, and by running the original
model. One that hands networks to other verifiers has an attribute ``save_network(rnn, path,
length)``, as "onnx-vnnlib" has: `tl-dyck export --onnx` calls it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from tl_dyck.certify.certificate import Certificate, Witness
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.registry import Registry
from tl_dyck.kit.verdicts import Verdict
from tl_dyck.rnn import TwoLayerRNN


class CertifyError(DyckError, ValueError):
    """A question without an answer: an empty string, a target that is no logit, a space too large.

    Such a space is beyond the model's reach.
    """


@runtime_checkable
class Certifier(Protocol):
    """Entry of the registry of certifiers; the module's docstring has an example.

    Options are the certifier's own, but two have a meaning that callers rely on:

    - `objectives`, an `Objectives` or None: what to minimise instead of the margins of the target.
      `worst_logit_change`, and so `certify_dyck`, ask for it; a certifier without it serves
      `certify_edits` alone.
    - `tight`: True to find the least margin, False if its sign will do. It is passed only if it is
      True, so a certifier that knows one way need not take it.
    """

    def __call__(
        self,
        rnn: TwoLayerRNN,
        tokens: tuple[int, ...],
        target: int,
        space: PerturbationSpace,
        *,
        time_limit: float | None = None,
        **options: Any,
    ) -> Certificate:
        """Certify one string.

        Args:
            rnn: the network, in float64, on the CPU.
            tokens: the string, without BOS, which `rnn` may need (`rnn.config.bos_token`).
            target: the logit that must stay largest.
            space: the strings to certify against; all of them are short enough for the network.
            time_limit: seconds; None for no limit.
            options: `objectives` and `tight`, see above, and the certifier's own.

        Returns:
            What `conclude` makes.
        """


certifiers: Registry[Certifier] = Registry("certifier", "tl_dyck.certifiers")
register_certifier = certifiers.register
"""Decorator that registers a certifier of your own: see `Registry.register`."""


def list_certifiers() -> list[str]:
    """Names of all certifiers, built in or installed. Loads none of them."""
    return certifiers.names()


@checked
def conclude(
    rnn: TwoLayerRNN,
    tokens: tuple[int, ...],
    target: int,
    space: PerturbationSpace,
    *,
    certifier: str,
    lower: float,
    string: tuple[int, ...] | None,
    started: float,
    objectives: Objectives | None = None,
    reason: str = "",
    stats: Mapping[str, int] | None = None,
    upper: float = math.inf,
) -> Certificate:
    """Make a certificate of a proved bound and the worst string seen: what a certifier returns.

    The string is believed to be of the space. `certify_edits` looks for it there, says by which
    edits it comes about, and runs the model on it; until then the witness has neither edits nor
    logits.

    Args:
        rnn: as handed to the certifier.
        tokens: as handed to the certifier.
        target: as handed to the certifier.
        space: as handed to the certifier.
        certifier: the certifier's name.
        lower: proved: no string of the space has a smaller margin; -inf for nothing proved.
        string: the worst string seen; None for the original.
        started: `time.perf_counter()` when the certifier began.
        objectives: as handed to the certifier, if they were: `lower` then bounds these, not the
            margins.
        reason: why it had to stop early, if it had to.
        stats: anything worth counting.
        upper: the least objective on that string, rounding included, if the certifier has found it.

    Returns:
        "proved" if `lower` is positive, "refuted" if the string's margin is negative by more than
        its rounding error, else "open".
    """
    target = check_integer("target", target, least=0, most=rnn.config.d_vocab_out - 1)
    string = tokens if string is None else string
    if upper == math.inf:
        wanted = Objectives.wanted(objectives, target, rnn.config.d_vocab_out)
        upper = float(Network.of(rnn).least_of([string], wanted).upper[0])
    # the network itself overflows: nothing is known
    lower = min(lower, upper) if upper < math.inf else -math.inf
    status: Verdict = "proved" if lower > 0 else "refuted" if upper < 0 else "open"
    if status == "open" and not reason:
        reason = (
            "numbers overflow on some string of the space, so nothing is known of its logits"
            if lower == -math.inf
            else "the least margin and 0 are closer than rounding, or than the certifier can tell"
        )
    return Certificate(
        status=status,
        tokens=tokens,
        target=target,
        lower=lower,
        upper=upper,
        worst=Witness(tokens=string, margin=upper),
        certifier=certifier,
        space=str(space),
        seconds=time.perf_counter() - started,
        reason=reason if status == "open" else "",
        stats=stats or {},
    )
