"""Contrastive regularisation, balance and length: Section 4.2, Figures 3 and 10."""

from __future__ import annotations

from functools import partial

from tl_dyck.intervals import correlation, difference
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.rules import Claim, Measured, Rule
from tl_dyck.studies.paper.scales import DOUBLED, READ, contrastive_name, length_name

__all__ = ["CLAIMS", "LONG"]

_ABOUT = "Contrastive regularisation"

#: What length generalisation is measured by.
LONG = "long_accuracy_after_close"


# --- readings -------------------------------------------------------------------------------------


def regularised(evidence: Evidence, column: str, mode: str) -> Measured:
    """Compare the largest λ of the contrastive regularisation with none, seed by seed."""
    weights = evidence.scale.weights
    names = {weight: contrastive_name(mode, weight) for weight in weights}
    after, before = evidence.paired(column, names[max(weights)], names[0.0])
    found = difference(after, before, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    form = ".2f" if column == "beta" else ".1%"
    listed = ", ".join(
        f"λ = {weight:g}: {evidence.mean(column, name).value:{form}}"
        for weight, name in names.items()
    )
    return Measured(estimate=found, reading=f"{listed}.", form="+" + form)


def against_control(evidence: Evidence, control: str) -> Measured:
    """The largest λ on complete strings beside a control, seed by seed."""
    name = contrastive_name("complete", max(evidence.scale.weights))
    after, before = evidence.paired(LONG, name, control)
    found = difference(after, before, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    plain = evidence.mean(LONG, contrastive_name("complete", 0.0)).value
    reading = (
        f"Regularised {after.mean():.1%}, control {before.mean():.1%}, neither {plain:.1%}."
        if len(after)
        else "There are no such models."
    )
    return Measured(estimate=found, reading=reading, form="+.1%")


def tied(evidence: Evidence, mode: str) -> Measured:
    """Rank correlation of β and accuracy at length over seeds, without regularisation."""
    rows = evidence.of(contrastive_name(mode, 0.0)).dropna(subset=["beta", LONG])
    found = correlation(
        rows["beta"].to_numpy(float),
        rows[LONG].to_numpy(float),
        evidence.scale.n_bootstrap,
        evidence.scale.data_seed,
    )
    reading = (
        f"{len(rows)} models; β from {rows['beta'].min():.2f} to {rows['beta'].max():.2f}, "
        f"accuracy at length from {rows[LONG].min():.0%} to {rows[LONG].max():.0%}."
    )
    return Measured(estimate=found, reading=reading, form="+.2f", correlation=True)


# --- claims ---------------------------------------------------------------------------------------


def _both_modes(mode: str, where: str) -> list[Claim]:
    strings = "complete strings" if mode == "complete" else "prefixes"
    return [
        Claim(
            name=f"contrastive-beta-{mode}",
            about=_ABOUT,
            where=where,
            says=f"The regularisation reduces the balance violation ({strings}).",
            quantity="change of β, largest weight against none, seed by seed",
            rule=Rule(
                kind="below",
                words="below 0",
                weak="the regularisation is of what β measures",
            ),
            measure=partial(regularised, column="beta", mode=mode),
        ),
        Claim(
            name=f"contrastive-length-{mode}",
            about=_ABOUT,
            where=where,
            says=f"The regularisation improves the accuracy at lengths 400–500 ({strings}).",
            quantity="change of accuracy after a closing bracket, largest weight against none, "
            "seed by seed",
            rule=Rule(kind="above", words="above 0"),
            measure=partial(regularised, column=LONG, mode=mode),
        ),
    ]


def _control(name: str, says: str, control: str) -> Claim:
    return Claim(
        name=name,
        about=_ABOUT,
        where="Section 4.2",
        says=says,
        quantity="accuracy after a closing bracket at lengths 400–500, regularised less control, "
        "seed by seed",
        rule=Rule(kind="above", words="above 0"),
        measure=partial(against_control, control=control),
        ours=True,
    )


def _tie(mode: str, where: str, says: str, rule: Rule, assumed: str = "") -> Claim:
    return Claim(
        name=f"correlation-{mode}",
        about=_ABOUT,
        where=where,
        says=says,
        quantity="rank correlation of β and accuracy after a closing bracket at lengths 400–500 "
        "over seeds, without regularisation",
        rule=rule,
        measure=partial(tied, mode=mode),
        assumed=assumed,
    )


CLAIMS: tuple[Claim, ...] = (
    *_both_modes("complete", "Section 4.2, Figure 3"),
    *_both_modes("prefix", "App. D.2, Figure 10"),
    _control(
        "contrastive-not-compute",
        "That is not because a step of the regularisation costs as much as twice the strings.",
        DOUBLED,
    ),
    _control(
        "contrastive-not-longer",
        f"Nor because the regularisation reads strings of up to {READ} brackets.",
        length_name(READ),
    ),
    _tie(
        "complete",
        "Section 4.2, Figure 3",
        "Less balance violation goes with better length generalisation, across seeds.",
        Rule(kind="below", words="below 0"),
    ),
    _tie(
        "prefix",
        "App. D.2, Figure 10",
        "Across seeds trained on prefixes, violation and length generalisation are not negatively "
        "tied.",
        Rule(kind="above", limit=-0.3, words="above −0.3: no tie that would matter"),
        "“Not present” is a tie that is weaker than −0.3.",
    ),
)
