"""Claims as rows of a file: how they are read, and that ours say what was recorded of them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tl_dyck.intervals import Estimate
from tl_dyck.reading.attention import random_row_variation
from tl_dyck.studies.claims import claims_table, load_claims, read_again, tally
from tl_dyck.studies.reproduction import load_paper, papers
from tl_dyck.studies.rules import KINDS, ClaimError, Measured, holm
from tl_dyck.tasks import load_task
from tl_dyck_papers.stack_use import CLAIMS as OF_STACK_USE
from tl_dyck_papers.stack_use import STACK_USE_2026
from tl_dyck_papers.stack_use.measure import GROUPS
from tl_dyck_papers.wen_2023 import CLAIMS, SCALES, WEN_2023
from tl_dyck_papers.wen_2023.scales import groups_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"

SECTIONS = """
- about: Heights
  where: Section 1
  quantity: mean height of {who}
  read: height
  rule: {above: 0.5, what: mean}
  form: .0%
  of: {unit: metres}
  claims:
    - name: "{who}-are-high"
      each: [{who: towers, from: 3}, {who: houses, from: 1e-1}]
      says: "{who} are higher than {LEAST:.0%}."
      of: {kind: "{who}", least: "{from}", both: ["{from}", "at {who}"]}
    - name: row-{k}-{d}
      each: {k: [2, 3], d: [4, 8]}
      says: So with {k} and {d}.
      quantity: other
      rule: {below: "{LEAST}", weak: "k is {k}, of {kind}"}
      of: {kind: rows, k: "{k}", unit: feet}
    - name: p-{a}-{b}
      each: [[{a: 1}, {a: 2}], [{b: x}, {b: y}]]
      says: P.
      quantity: other
      ours: true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_of_a_file_are_claims(tmp_path):
    claims = load_claims(written(tmp_path, SECTIONS), {"LEAST": 0.25, "who": "all", "kind": "any"})
    by_name = {claim.name: claim for claim in claims}
    assert list(by_name) == [
        *("towers-are-high", "houses-are-high", "row-2-4", "row-2-8", "row-3-4", "row-3-8"),
        *("p-1-x", "p-1-y", "p-2-x", "p-2-y"),
    ]
    towers = by_name["towers-are-high"]
    assert towers.of == {"unit": "metres", "kind": "towers", "least": 3, "both": [3, "at towers"]}
    assert by_name["houses-are-high"].of["least"] == 0.1  # a number, as YAML 1.2 has it
    assert (towers.says, towers.quantity) == (
        "towers are higher than 25%.",
        "mean height of towers",
    )
    assert (towers.about, towers.where, towers.read, towers.form) == (
        *("Heights", "Section 1", "height"),
        ".0%",
    )
    assert towers.rule.words(towers.form) == "the mean is above 50%"
    row = by_name["row-3-8"]
    assert (row.rule.kind, row.rule.limit, row.rule.weak) == ("below", 0.25, "k is 3, of rows")
    assert (row.of["k"], row.quantity, row.ours) == (3, "other", False)
    assert (row.of["unit"], by_name["p-1-x"].of) == ("feet", {"unit": "metres"})
    assert by_name["p-2-y"].ours


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rule: {above: 0.5,", "rule: {over: 0.5,", "'towers-are-high': a rule has one of above"),
        ("says: P.", "", "claim 'p-1-x' does not say: says"),
        ("ours: true", "our: true", "claim 'p-1-x' has unknown fields: our"),
        ("name: p-{a}-{b}", "name: p-{a}", "claims of one name: p-1, p-2"),
        ("{LEAST:.0%}", "{LAEST:.0%}", "cannot fill in '{who} are higher than {LAEST:.0%}.'"),
        ("- about: Heights", "about: Heights", "is not valid YAML"),
        ("where: Section 1", "where: Section 1\n  where: Section 2", "'where' stands twice"),
        ("of: {unit: metres}", "of: metres", "of is a mapping, not 'metres'"),
        ("each: {k: [2, 3], d: [4, 8]}", "each: 3", "each is a mapping of lists, or a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said(old, new, message, tmp_path):
    assert old in SECTIONS
    path = written(tmp_path, SECTIONS.replace(old, new))
    with pytest.raises(ClaimError, match=re.escape(message)):
        load_claims(path, {"LEAST": 0.25})


def test_what_is_no_file_of_claims_is_said(tmp_path):
    with pytest.raises(ClaimError, match=r"cannot read the claims: there is no file .*none\.yaml"):
        load_claims(tmp_path / "none.yaml")
    for text in ("3", "- 3", "", "claims: []", "- {about: x, claims: {name: y}}"):
        with pytest.raises(ClaimError, match="does not hold a list of sections"):
            load_claims(written(tmp_path, text))


# --- judged together, and again -------------------------------------------------------------------


def reading(evidence, kind, **more):
    value, half = evidence[kind]
    estimate = Estimate(value=value, low=value - half, high=value + half, n=7)
    return Measured(estimate=estimate, reading=f"of {kind}", unit=2.0, beside="so much")


ROWS = """
- {about: a, where: b, says: C., quantity: d, read: height, form: +.1%, claims: [
    {name: sure, of: {kind: sure}, rule: {above: 0.5}},
    {name: one, of: {kind: near}, rule: {above: 0.5, what: share}, ours: true},
    {name: of-random, of: {kind: sure}, rule: {below: 0.5, times: random}},
    {name: late, of: {kind: sure}, rule: {above: 0.5, post_hoc: it is late}}]}
"""


def test_a_table_of_verdicts_by_hand(tmp_path):
    claims = load_claims(written(tmp_path, ROWS))
    evidence = {"sure": (0.9, 0.05), "near": (0.6, 0.085)}
    table = claims_table(claims, {"height": reading}, evidence)
    rows = table.set_index("name")
    assert rows.loc["sure", "measured"] == "+90.0% [+85.0%, +95.0%]"
    assert rows.loc["sure", ["rule", "limit", "verdict", "beside"]].tolist() == [
        *("the mean is above 50%", 0.5),
        *("reproduced", "so much"),
    ]
    assert rows.loc["of-random", ["rule", "limit", "verdict"]].tolist() == [
        *("the mean is below 50% of random (100.0%)", 1.0, "reproduced"),
    ]
    assert rows.loc["late", ["verdict", "outcome", "why"]].tolist() == [
        *("post hoc", "reproduced", "it is late"),
    ]
    # z = 0.1 / (0.085 / 1.96) = 2.31, p = 0.021: the least of four, and 1 × p survives as the last
    z = 0.1 / (0.085 / 1.959963984540054)
    p = math.erfc(z / math.sqrt(2))
    assert rows.loc["one", "p"] == pytest.approx(p)
    assert rows.loc["one", "p_holm"] == pytest.approx(holm(np.array([0, p, 0, 0]))[1]) == p
    assert tally(table) == "3 claims: 2 reproduced, 1 post hoc; 1 checks of ours: 1 reproduced"
    again = read_again(claims, table.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(again, table)
    with pytest.raises(ClaimError, match="there are no numbers of one, late"):
        read_again(claims, table[~table["name"].isin(["one", "late"])])
    with pytest.raises(ClaimError, match="claim 'sure': no reading 'height'; there are width"):
        claims_table(claims, {"width": reading}, evidence)


# --- ours -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", [WEN_2023, STACK_USE_2026], ids=lambda paper: paper.name)
def test_every_claim_can_be_read_and_no_number_is_read_twice(paper):
    assert load_paper(paper.name) is paper
    assert set(papers.names()) == {WEN_2023.name, STACK_USE_2026.name}
    groups = {group["group"] for group in groups_of(SCALES["paper"])} | set(GROUPS)
    for claim in paper.claims:
        assert claim.read in paper.readings, claim.name
        named = [claim.of.get(key) for key in ("group", "than", "stopped", "control")]
        assert {*named, *claim.of.get("groups", ())} - {None} <= groups, claim.name
        assert claim.rule.kind in KINDS
        assert re.search(r"\d|interval", claim.rule.words(claim.form))
        assert "{" not in "".join([claim.says, claim.quantity, claim.assumed, claim.rule.times])
    asked = [json.dumps([claim.read, claim.of], sort_keys=True) for claim in paper.claims]
    assert len(set(asked)) == len(asked)  # one datum, one verdict


#: Verdicts that are not those of the run: what they were, and what they are.
MENDED = {
    **dict.fromkeys(
        (
            *("other-strings", "variation-prefix-no-positions", "variation-prefix-linear"),
            *(f"table-1-k2-{rest}" for rest in ("d4-layers-3", "d8-layers-2", "d8-layers-3")),
            *(f"table-1-k3-d{depth}-layers-{layers}" for depth in (4, 8) for layers in (2, 3)),
            "theorem-2-bounded",
        ),
        ("reproduced", "weak", "reproduced"),
    ),
    **dict.fromkeys(
        ("not-stack-like-minimal-split", "not-stack-like-minimal-yao"),
        ("reproduced", "post hoc", "reproduced"),
    ),
    **dict.fromkeys(
        (
            *("not-stack-like-bare-onehot", "not-stack-like-bare-split"),
            *("not-stack-like-minimal-onehot", "at-length"),
        ),
        ("not reproduced", "post hoc", "not reproduced"),
    ),
}


@pytest.mark.parametrize(
    ("name", "claims", "mended", "left_out"),
    [
        ("claims", CLAIMS, MENDED, {"table-1-k2-d4-layers-2", "length-is-not-learned"}),
        ("stack_use", OF_STACK_USE, {}, set()),
    ],
)
def test_recorded_numbers_give_the_recorded_verdicts(name, claims, mended, left_out):
    """All but those that are listed here, with what became of them."""
    table = pd.DataFrame(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"])
    again = read_again(claims, table).set_index("name")
    was = table.set_index("name")["verdict"]
    changed = {
        claim: (was[claim], again.loc[claim, "verdict"], again.loc[claim, "outcome"])
        for claim in again.index
        if again.loc[claim, "verdict"] != was[claim]
    }
    assert changed == mended
    assert set(was.index) - set(again.index) == left_out
    bare = [claim for claim in again.index if claim not in mended]
    assert set(again.loc[bare, "verdict"]) <= {"reproduced", "not reproduced", "undecided", "weak"}
    assert (again["p_holm"].dropna() >= again["p"].dropna()).all()


def test_recorded_units_are_what_they_are_called():
    """Random patterns by their formula, intervals by the row that they are of."""
    rows = json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))["rows"]
    known = {row["name"]: row for row in rows}
    groups = {group["group"]: group for group in groups_of(SCALES["paper"])}
    low = {
        claim.of["group"]: known[claim.name]["low"] for claim in CLAIMS if claim.read == "variation"
    }
    checked = 0
    for claim in CLAIMS:
        unit = known[claim.name]["unit"]
        if claim.read in ("variation", "choices"):
            group = claim.of.get("group", "figure2-onehot-rate-0.01")
            n = len(load_task(groups[group]["task"]).language.probe_string) + 1
            expected = float(random_row_variation(n).sum())
        elif claim.read == "less":
            expected = low[claim.of["than"]]
        elif claim.rule.times:
            expected = {"variation-layer-mean": 2.27, "corollary-2": 0.111}[claim.name]
        else:
            assert unit is None
            continue
        assert unit == pytest.approx(expected, abs=1e-4)
        checked += 1
    assert checked == 25
