"""Claims of a paper, as data: rows of a YAML file, and the table of what became of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, final

import pandas as pd

from tl_dyck.estimates import LEVEL, Estimate
from tl_dyck.runs.yaml_files import read_values
from tl_dyck.studies.rules import VERDICTS, ClaimError, ClaimVerdict, Measured, Rule, judge_all

__all__ = ["Claim", "Reading", "claims_table", "load_claims", "read_again", "tally"]

#: From the evidence, and the arguments of a claim, to what was found.
Reading = Callable[..., Measured]


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of a paper, or a check of ours beside one.

    Attributes:
        name: short and unique.
        about: which experiment it belongs to.
        where: section, figure, table or footnote.
        says: what the paper says, in our words.
        quantity: what is measured, with its unit.
        rule: when it counts as reproduced.
        read: name of the reading that finds the number in the evidence.
        of: arguments of the reading.
        form: format of the number.
        reported: the paper's number as remembered, or "": the numbers are lost in our copy of the
            text.
        ours: whether it is a check of ours, which the paper does not claim.
        assumed: how the text is read where it leaves several ways, or "".
    """

    name: str
    about: str
    where: str
    says: str
    quantity: str
    rule: Rule
    read: str
    of: Mapping[str, Any] = field(default_factory=dict)
    form: str = ".2f"
    reported: str = ""
    ours: bool = False
    assumed: str = ""


def readings_of(*modules: ModuleType) -> dict[str, Reading]:
    """The public functions that modules define, by the names that claims read them by."""
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_")
    }


# --- files ----------------------------------------------------------------------------------------


def load_claims(path: Path, constants: Mapping[str, Any] | None = None) -> tuple[Claim, ...]:
    """Read claims from a YAML file: a list of sections, each with its ``claims``.

    A row of ``claims`` has the fields of a `Claim`; what it does not say is said by its section,
    and its ``of`` adds to the section's. With ``each`` a row stands for several: for one after the
    other of a list of mappings, for every combination of a list of such lists, or of a mapping of
    names to lists of values. In any text ``{name}`` is replaced, as by `str.format`, by what
    ``each`` or ``of`` call so, and a text that is nothing else by the value itself.

    Args:
        path: of the file.
        constants: more that texts may name.

    Raises:
        ClaimError: the file cannot be read, or what it says is no claim; the message names the row.
    """
    sections = read_values(path, "the claims", ClaimError)
    if not _is_list_of_mappings(sections) or not all(
        _is_list_of_mappings(section.get("claims")) for section in sections
    ):
        raise ClaimError(f"{str(path)!r} does not hold a list of sections with a list of claims")
    claims = [claim for section in sections for claim in _section(section, constants or {})]
    names = [claim.name for claim in claims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ClaimError(f"{str(path)!r}: claims of one name: {', '.join(twice)}")
    return tuple(claims)


def _section(section: Mapping[str, Any], constants: Mapping[str, Any]) -> Iterator[Claim]:
    shared = {name: value for name, value in section.items() if name != "claims"}
    for row in section["claims"]:
        arguments = shared.get("of", {}), row.get("of", {})
        for of in arguments:
            if not isinstance(of, Mapping):
                raise ClaimError(f"of is a mapping, not {of!r}")
        whole = {**shared, **row, "of": {**arguments[0], **arguments[1]}}
        for values in _each(whole.pop("each", {})):
            # the nearest wins: a row's own values hide constants of the same name
            known = {**constants, **values}
            of = _filled(whole["of"], known)
            yield _claim({**_filled(whole, {**known, **of}), "of": of})


def _is_list_of_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _each(each: Any) -> list[dict[str, Any]]:
    # a plain list is one axis; no "each" at all, {}, is the product of no axes: one row
    axes = [each] if _is_list_of_mappings(each) and each else each
    if isinstance(each, Mapping) and all(isinstance(values, list) for values in each.values()):
        axes = [[{name: value} for value in values] for name, values in each.items()]
    if not isinstance(axes, list) or not all(map(_is_list_of_mappings, axes)):
        raise ClaimError(
            f"each is a mapping of lists, or a list of mappings or of such, not {each}"
        )
    return [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*axes)]


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, names) for each in value]
    if not isinstance(value, str):
        return value
    # a text that is one name alone keeps the value's type
    if value[1:-1] in names and value == f"{{{value[1:-1]}}}":
        return names[value[1:-1]]
    try:
        return value.format_map(names)
    except (KeyError, ValueError, IndexError) as error:
        raise ClaimError(f"cannot fill in {value!r}: {error!r}") from error


def _claim(values: dict[str, Any]) -> Claim:
    name = values.get("name", "without a name")
    known = {each.name for each in fields(Claim)}
    if unknown := sorted(values.keys() - known):
        raise ClaimError(f"claim {name!r} has unknown fields: {', '.join(unknown)}")
    needed = ("name", "about", "where", "says", "quantity", "rule", "read")
    if missing := [each for each in needed if each not in values]:
        raise ClaimError(f"claim {name!r} does not say: {', '.join(missing)}")
    try:
        return Claim(**{**values, "rule": Rule.from_dict(values["rule"])})
    except ClaimError as error:
        raise ClaimError(f"claim {name!r}: {error}") from error


# --- the table ------------------------------------------------------------------------------------


def claims_table(
    claims: Sequence[Claim], readings: Mapping[str, Reading], evidence: Any
) -> pd.DataFrame:
    """One row per claim, see `Reproduction`; all are corrected for being looked at together.

    Raises:
        ClaimError: a claim is read by what is no reading.
    """
    for claim in claims:
        if claim.read not in readings:
            known = ", ".join(sorted(readings))
            raise ClaimError(f"claim {claim.name!r}: no reading {claim.read!r}; there are {known}")
    return _judged(claims, [readings[claim.read](evidence, **claim.of) for claim in claims])


def read_again(claims: Sequence[Claim], table: pd.DataFrame) -> pd.DataFrame:
    """Judge what was measured once more, by the rules as they are now.

    Args:
        claims: every one needs a row; rows of other names are left out.
        table: as `claims_table` makes it; of its columns those that say what was measured count:
            name, value, low, high, n_seeds, unit, correlation, beside, positive, negative and
            reading; and interval and level, if it says them (else intervals are of a bootstrap).

    Raises:
        ClaimError: a claim has no row.
    """
    rows = {row["name"]: row for row in table.to_dict("records")}
    if missing := [claim.name for claim in claims if claim.name not in rows]:
        raise ClaimError(f"there are no numbers of {', '.join(missing)}")
    found = []
    for row in (rows[claim.name] for claim in claims):
        value, low, high, unit = (
            math.nan if row[name] is None else float(row[name])
            for name in ("value", "low", "high", "unit")
        )
        found.append(
            Measured(
                estimate=Estimate(
                    value=value,
                    low=low,
                    high=high,
                    n=int(row["n_seeds"]),
                    kind=row.get("interval", "bootstrap"),  # as all were, before tables said it
                    level=float(row.get("level", LEVEL)),
                ),
                unit=unit,
                correlation=bool(row["correlation"]),
                **{name: row[name] for name in ("beside", "positive", "negative", "reading")},
            )
        )
    return _judged(claims, found)


def _judged(claims: Sequence[Claim], found: Sequence[Measured]) -> pd.DataFrame:
    judged = judge_all([claim.rule for claim in claims], found)
    return pd.DataFrame([_row(*row) for row in zip(claims, found, judged, strict=True)])


def _row(claim: Claim, found: Measured, judged: ClaimVerdict) -> dict[str, Any]:
    estimate = found.estimate
    limit, upper = claim.rule.limits(found.unit)
    return {
        **{name: getattr(claim, name) for name in _SAID},
        "measured": estimate.text(claim.form),
        "beside": found.beside,
        "value": estimate.value,
        **estimate.ends(),
        "n_seeds": estimate.n,
        "rule": claim.rule.words(claim.form, found.unit),
        "limit": limit,
        # a table writes no infinity
        "upper": upper if math.isfinite(upper) else math.nan,
        "unit": math.nan if found.unit is None else found.unit,
        "correlation": found.correlation,
        **vars(judged),
        "positive": found.positive,
        "negative": found.negative,
        "reading": found.reading,
    }


_SAID = ("name", "about", "where", "says", "quantity", "reported", "ours", "assumed", "form")


def tally(claims: pd.DataFrame) -> str:
    """Count the paper's claims and our checks, and those of each verdict."""
    ours = claims["ours"].astype(bool)
    parts = []
    for rows, what in ((claims[~ours], "claims"), (claims[ours], "checks of ours")):
        counts = rows["verdict"].value_counts()
        listed = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if name in counts)
        if len(rows):
            parts.append(f"{len(rows)} {what}: {listed}")
    return "; ".join(parts)
