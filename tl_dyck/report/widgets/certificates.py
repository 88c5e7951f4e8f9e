"""A certificate in words: the string, the verdict, and the worst string with its edits marked."""

from __future__ import annotations

import math
from typing import Any

import torch

from tl_dyck.certify import Certificate, DyckCertificate, Edit, Passage, Symbols
from tl_dyck.certify.spaces import placed
from tl_dyck.kit.arguments import checked
from tl_dyck.language import DyckLanguage
from tl_dyck.language.checks import BOS_STRING
from tl_dyck.reading.inputs import token_texts
from tl_dyck.report.heatmap import text_of
from tl_dyck.report.markup import Html, element, table
from tl_dyck.report.widgets.frame import Widget, note
from tl_dyck.report.widgets.strings import check_readable, words
from tl_dyck.rnn import TwoLayerRNN, export_rnn

# rows of the table; of a real vocabulary the target and its nearest rivals are what one looks for
_MOST_LOGITS = 12
_MARKS = {"proved": "✓", "refuted": "✗", "open": "?"}


@checked
def certificate(cert: Certificate | DyckCertificate, rnn_or_model: Any) -> Widget:
    """A certificate: verdict, original string, worst string with edits marked, logits on both.

    Args:
        cert: of `tl_dyck.certify.certify_edits`, or a row of `certify_dyck`.
        rnn_or_model: what was certified.
    """
    if isinstance(cert, DyckCertificate):
        cert = cert.certificate
    rnn = rnn_or_model if isinstance(rnn_or_model, TwoLayerRNN) else export_rnn(rnn_or_model)
    language = written_in(rnn_or_model, rnn)
    outputs = output_names(rnn, language)
    target = outputs[cert.target]
    before = _logits(rnn, cert.tokens)
    body = [
        _verdict(cert, target),
        _strings(cert, rnn, language),
        _table(cert, outputs, before),
        _facts(cert),
    ]
    return Widget(
        title=f"Certificate: {cert.status}",
        # 34 pixels a row
        height=520 + 34 * min(len(outputs), _MOST_LOGITS),
        body=body,
        data={"strings": [], "maps": []},
    )


def written_in(given: Any, rnn: TwoLayerRNN) -> DyckLanguage | None:
    """The language whose brackets tokens are, as the RNN or its model knows it."""
    return rnn.config.language or getattr(getattr(given, "cfg", None), "language", None)


def _verdict(cert: Certificate, target: str) -> Html:
    said = {
        "proved": f"On every string of the space {cert.space} the model prefers “{target}”: its "
        f"logit is above all others by at least {cert.lower:.3g}. This is proved.",
        "refuted": f"There is a string in the space {cert.space} on which the model no longer "
        # the margin of what is refuted is negative
        f"prefers “{target}”: its logit is {-cert.upper:.3g} below another.",
        "open": f"Whether the model prefers “{target}” on every string of the space "
        f"{cert.space} is not settled: the least margin lies between {cert.lower:.3g} (proved) "
        f"and {cert.upper:.3g} (seen).",
    }[cert.status]
    badge = element(
        "strong", f"{_MARKS[cert.status]} {cert.status}", class_=f"verdict {cert.status}"
    )
    return element(
        "p", badge, " ", said, f" ({cert.reason})" if cert.reason else None, class_="reading"
    )


def _strings(cert: Certificate, rnn: TwoLayerRNN, language: DyckLanguage | None) -> list[Html]:
    def show(ids: tuple[int, ...], marked: set[int], *, removed: bool) -> Html:
        tokens = token_texts(rnn, torch.tensor(ids), language)
        return words(check_readable(text_of(ids, tokens, language)), marked, removed=removed)

    taken, put = marks(() if cert.worst is None else cert.worst.edits)
    parts = [element("h2", "The string"), show(cert.tokens, taken, removed=True)]
    if cert.worst is not None:
        name = "Counterexample" if cert.status == "refuted" else "The worst string that was run"
        symbols = (
            rnn.config.symbols
            if language is None
            else Symbols((*language.alphabet, BOS_STRING), "")
        )
        listed = [
            element("li", _edit(p, p.edit))
            for p in cert.with_symbols(symbols).passages()
            if p.edit is not None
        ]
        parts += [
            element("h2", name),
            show(cert.worst.tokens, put, removed=False),
            element(
                "ul", listed or element("li", "no edit: it is the string itself"), class_="edits"
            ),
        ]
    return parts


def marks(edits: tuple[Edit, ...]) -> tuple[set[int], set[int]]:
    """Positions of the original string that edits delete, and of the edited one that they add."""
    taken: set[int] = set()
    put: set[int] = set()
    for edit, at in placed(edits):
        taken.update(range(edit.start, edit.start + len(edit.removed)))
        put.update(range(at, at + len(edit.inserted)))
    return taken, put


def _edit(passage: Passage, edit: Edit) -> str:
    if not edit.removed:
        what = f"“{passage.after}” put in before position {edit.start}"
    elif not edit.inserted:
        what = f"“{passage.before}” at position {edit.start} left out"
    else:
        what = f"“{passage.before}” at position {edit.start} becomes “{passage.after}”"
    return f"{what} ({edit.transformation})"


def _table(cert: Certificate, outputs: list[str], before: list[float]) -> list[Html]:
    after = before if cert.worst is None else list(cert.worst.logits)
    # the largest first: by their logits on the worst string
    others = sorted(set(range(len(outputs))) - {cert.target}, key=lambda index: -after[index])
    # one place is the target's
    chosen = [cert.target, *others[: _MOST_LOGITS - 1]]
    low = min(min(before[index], after[index]) for index in chosen)
    high = max(max(before[index], after[index]) for index in chosen)

    def bar(value: float) -> Html:
        # bars begin at the least logit that is shown, since logits have no zero
        share = (value - low) / (high - low) if high > low else 1.0
        inside = (
            element("span", style=f"width:{100 * share:.1f}%") if math.isfinite(share) else None
        )
        return element(
            "span", element("span", inside, class_="meter"), f"{value:.3f}", class_="value"
        )

    rows = [
        [
            f"“{outputs[index]}”" + (" (target)" if index == cert.target else ""),
            bar(before[index]),
            bar(after[index]),
        ]
        for index in chosen
    ]
    omitted = len(outputs) - len(chosen)
    more = f"; {omitted} lower ones are left out" if omitted else ""
    name = "on the counterexample" if cert.status == "refuted" else "on the worst string"
    caption = f"What the model says comes next{more}"
    return [
        element("h2", "Logits at the last position"),
        table(caption, ["output", "on the string", name], rows),
    ]


def _facts(cert: Certificate) -> Html:
    counts = "".join(f", {value:,} {name.replace('_', ' ')}" for name, value in cert.stats.items())
    return note(
        f"Certifier {cert.certifier}, {cert.seconds:.2g} s{counts}. The margin is the target's "
        "logit minus the largest other; "
        f"its least value over the space lies in [{cert.lower:.4g}, {cert.upper:.4g}]."
    )


def output_names(rnn: TwoLayerRNN, language: DyckLanguage | None) -> list[str]:
    """Return the meaning of each logit: tokens, or classes."""
    n, named = rnn.config.d_vocab_out, rnn.config.named_logits
    if not named:
        return [f"class {index}" for index in range(n)]
    others = [f"output {index}" for index in range(named, n)]
    return [*token_texts(rnn, torch.arange(named), language), *others]


def _logits(rnn: TwoLayerRNN, tokens: tuple[int, ...]) -> list[float]:
    bos = rnn.config.bos_token
    # a certificate's string has BOS only if it was given with it
    string = tokens if bos is None or tokens[:1] == (bos,) else (bos, *tokens)
    with torch.no_grad():
        values: list[float] = rnn.last_logits(torch.tensor([string]))[0].tolist()
    return values
