"""What a certifier returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import final

from tl_dyck.certify.display import Shown
from tl_dyck.certify.marks import Passage, passages
from tl_dyck.certify.spaces import Edit
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.environment import said_with
from tl_dyck.kit.verdicts import Verdict, as_verdict
from tl_dyck.language.alphabet import Symbols


@final
@dataclass(frozen=True, kw_only=True)
class Witness:
    """A string of the space, and what the network makes of it.

    Attributes:
        tokens: the string.
        margin: logit of the target minus the largest other logit.
        edits: how it comes about; positions count the tokens of the original string as it was
            given.
        logits: at its last token. Empty, as are the edits, until `certify_edits` has confirmed the
            string.
    """

    tokens: tuple[int, ...]
    margin: float
    edits: tuple[Edit, ...] = ()
    logits: tuple[float, ...] = ()


#: What a verdict says, of the answer that is asked about.
_MEANINGS = {
    "proved": "no allowed edit of the string makes the model prefer another answer than {}",
    "refuted": "there are allowed edits after which the model prefers another answer than {}",
    "open": "whether allowed edits can make the model prefer another answer than {} is not known",
}


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Shown):
    """A verdict on one string: does the target stay the largest logit on every string of a space?

    The *margin* of a string is logit[target] - max of the other logits.

    Attributes:
        status: "proved" (every string's margin is positive), "refuted" (some string's is
            negative) or "open".
        tokens: the original string, as it was given (with BOS, if it was).
        target: the logit that must stay largest.
        lower: proved: no string of the space has a smaller margin. -inf if nothing was proved.
        upper: seen: the margin of `worst`. The least margin lies in [lower, upper].
        worst: the string with the least margin that was run.
        certifier: name of the certifier.
        space: text form of the space.
        seconds: wall-clock time.
        reason: why it is open; or a remark.
        stats: what the certifier counted.
        symbols: how tokens are written, for whoever shows the certificate.
        made_with: dtype of the model's weights, versions of torch and TransformerLens, by name.
    """

    _unsaid = ("symbols",)
    _derived = ("margin",)

    status: Verdict
    tokens: tuple[int, ...]
    target: int
    lower: float
    upper: float
    worst: Witness | None
    certifier: str
    space: str
    seconds: float
    reason: str = ""
    stats: Mapping[str, int] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    made_with: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", as_verdict(self.status))
        if math.isnan(self.lower) or math.isnan(self.upper) or self.lower > self.upper:
            raise ValueError(f"the bounds [{self.lower}, {self.upper}] are not an interval.")
        if self.status == "proved" and not self.lower > 0:
            raise ValueError(f"proved with a margin of at least {self.lower}: it must be positive.")
        if self.status == "refuted" and (self.worst is None or not self.upper < 0):
            raise ValueError(
                f"refuted without a string of negative margin (least seen: {self.upper})."
            )
        for name in ("stats", "made_with"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def low(self) -> float:
        """`lower`, by the name that it has in every verdict."""
        return self.lower

    @property
    def high(self) -> float:
        """`upper`, by the name that it has in every verdict."""
        return self.upper

    @property
    def margin(self) -> float:
        """The margin that settles the verdict: a bound if proved, a string's if refuted, or nan."""
        return {"proved": self.lower, "refuted": self.upper}.get(self.status, math.nan)

    @property
    def counterexample(self) -> Witness | None:
        """The worst string, if it is a counterexample."""
        return self.worst if self.status == "refuted" else None

    @checked
    def with_symbols(self, symbols: Symbols) -> Certificate:
        """The same, with tokens written otherwise."""
        return replace(self, symbols=symbols)

    def words(self) -> list[str]:
        """The tokens of the original string as text, without BOS."""
        return self.symbols.words(self.tokens)

    def passages(self) -> tuple[Passage, ...]:
        """The original string, cut where the worst string differs from it, as text."""
        return passages(self.tokens, () if self.worst is None else self.worst.edits, self.symbols)

    def marked(self) -> str:
        """The original string with what makes its worst string in its place.

        For example ``[‹+()›(`` or ``was ‹good→bad›``.

        ‹+…› was inserted, ‹…→› deleted, and ‹…→…› substituted.
        """
        return self.symbols.separator.join(map(str, self.passages()))

    def summary(self) -> list[tuple[str, str]]:
        """What there is to say, as names and texts; the first is the status."""
        proved = f"at least {self.lower:.6g} proved, " if math.isfinite(self.lower) else ""
        answer = self.symbols.logit(self.target)
        margin = f"{proved}at most {self.upper:.6g} seen (its logit less the largest other)"
        rows = [
            ("status", self.status),
            ("meaning", _MEANINGS[str(self.status)].format(answer)),
            ("string", self.symbols.text(self.tokens)),
            ("answer", answer),
            ("edits allowed", self.space),
            ("margin", margin),
        ]
        if self.worst is not None:
            name = "counterexample" if self.status == "refuted" else "worst string seen"
            rows.append((name, self.symbols.text(self.worst.tokens)))
            none = (
                "none: it is the original string"
                if self.worst.tokens == self.tokens
                else "not confirmed yet"
            )
            rows.append(("its edits", self.marked() if self.worst.edits else none))
        if self.reason:
            rows.append(("reason", self.reason))
        run = self.stats.get("strings_run")  # the other counts speak of how a certifier works
        counts = "" if run is None else f", {run:,} strings run"
        rows.append(("effort", f"{self.certifier}, {self.seconds:.3g} s{counts}"))
        if self.made_with:
            rows.append(("computed", said_with(self.made_with)))
        return rows
