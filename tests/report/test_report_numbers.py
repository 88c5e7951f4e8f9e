"""The report's numbers are the study's; odd studies and bad input."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.pages import Node, check_plots, csv, data_block, read_page, table_rows
from tl_dyck.report import write_report
from tl_dyck.report.figures import FIGURES
from tl_dyck.report.heatmap import SHADES
from tl_dyck.report.markup import percent
from tl_dyck.report.page import Section
from tl_dyck.report.patterns import _exact, likeliest_errors, worst_string
from tl_dyck.report.study import PARTS, study_page
from tl_dyck.studies import Study, findings

TABLES = dict.fromkeys(("accuracy", "after-close", "entropy-gap", "balance"), "models")
TABLES |= {"depth": "closings", "stack": "heads", "training": "history"}
TABLES |= {name: name for name in ("variation", "certificates", "languages")}


@pytest.mark.parametrize(("name", "table"), TABLES.items())
def test_downloads_hold_the_tables(page, tiny_study, name, table):
    saved = csv(page, name)
    expected = getattr(tiny_study, table)
    if name == "balance":
        expected = expected[expected["family"] == "minimal-onehot"]
    if name == "variation":  # the paper's number is held beside families with one layer only
        assert saved["recalled"].isna().tolist() == [True, True, False]
        expected = expected.assign(recalled=[np.nan, np.nan, expected["recalled"].iloc[-1]])
    expected = expected[list(saved.columns)].reset_index(drop=True)
    pd.testing.assert_frame_equal(saved, expected, check_dtype=False)


def marks(page: Node, name: str) -> list[dict]:
    return data_block(page, "data-plots")[name]["data"]


def test_plots_show_the_tables(page, tiny_study):
    models, heads, variation = tiny_study.models, tiny_study.heads, tiny_study.variation
    for name, column in (("accuracy", "accuracy"), ("after-close", "accuracy_after_close")):
        near, _, far, _ = marks(page, f"{name}-0")
        np.testing.assert_allclose(near["x"], 100 * models[column])
        np.testing.assert_allclose(far["x"], 100 * models[f"long_{column}"])
    for plot, lengths in enumerate(("training", "long")):
        closings = tiny_study.closings[tiny_study.closings["lengths"] == lengths]
        means = closings.groupby(["family", "depth"])["accuracy"].mean()
        for curve in marks(page, f"depth-{plot}"):
            np.testing.assert_allclose(curve["y"], 100 * means[curve["name"]])
    order = list(tiny_study.config.families)
    assert [round(y) for y in near["y"]] == [order.index(family) for family in models["family"]]
    np.testing.assert_allclose(marks(page, "stack-0")[0]["x"], heads["mass_at_closing"])
    measured, recalled = marks(page, "variation-0")
    np.testing.assert_allclose(measured["x"], variation["variation"])
    np.testing.assert_allclose(
        np.add(measured["x"], measured["error_x"]["array"]), variation["high"]
    )
    np.testing.assert_allclose(
        np.subtract(measured["x"], measured["error_x"]["arrayminus"]), variation["low"]
    )
    assert recalled["x"] == [None, None, 0.24]  # the paper names no layer of the others
    gap, means = marks(page, "entropy-gap-0")
    np.testing.assert_allclose(gap["x"], models["entropy_gap"])
    np.testing.assert_allclose(
        means["x"], models.groupby("family", sort=False)["entropy_gap"].mean()
    )
    (balance,) = marks(page, "balance-0")
    minimal = models[models["family"] == "minimal-onehot"]
    np.testing.assert_allclose(balance["x"], minimal["balance_violation"])
    np.testing.assert_allclose(balance["y"], 100 * minimal["long_accuracy_after_close"])
    (against_balance,), (against_length,) = (
        marks(page, "certificates-0"),
        marks(page, "certificates-1"),
    )
    np.testing.assert_allclose(against_balance["x"], minimal["balance_violation"])
    np.testing.assert_allclose(against_balance["y"], minimal["logit_change"])
    np.testing.assert_allclose(against_length["x"], minimal["logit_change"])
    np.testing.assert_allclose(against_length["y"], 100 * minimal["long_accuracy_after_close"])
    losses = {
        key: list(rows["loss"]) for key, rows in tiny_study.history.groupby(["family", "seed"])
    }
    for index, family in enumerate(order):
        curves = marks(page, f"training-{index}")
        assert [curve["y"] for curve in curves] == [
            losses[family, seed] for seed in tiny_study.config.seeds
        ]


def test_a_part_of_ones_own_is_shown_where_it_stands(tiny_study, monkeypatch):
    def mine(shown):
        return [None, Section("mine", "A part of mine", f"{len(shown.found)} findings")]

    monkeypatch.setattr("tl_dyck.report.study.PARTS", [*PARTS[:1], mine, *PARTS[1:]])
    titles = re.findall(r'<h2 id="([\w-]+)-title">', study_page(tiny_study))
    assert titles[:2] == ["summary", "mine"]


def test_the_string_that_hurts_most_is_shown_before_and_after(page, tiny_study):
    rows = tiny_study.certificates
    worst = rows.loc[rows["margin_seen"].idxmin()]
    (section,) = page.find("section", id="worst-string")
    assert str(worst["worst_edits"]) in [code.text for code in section.find("code")]
    reading = section.find("p", class_="reading")[0].text
    assert str(worst["prefix"]) in reading
    assert str(worst["worst_string"]) in reading
    sizes = [len(svg.find("text", class_="k")) for svg in section.find("svg")]
    assert sizes == [1 + len(worst["prefix"]), 1 + len(worst["worst_string"])]
    assert "The string that hurts most" in section.find("h2")[0].text
    of_a_right_model = rows.loc[[worst.name]].assign(status="proved", margin_seen=0.25)
    found = worst_string(replace(tiny_study, certificates=of_a_right_model))
    assert found is not None
    assert found.title == "The closest call"
    assert "says so with the least to spare" in found.reading
    assert "0.25 above the largest other one" in found.reading
    fewer = replace(tiny_study, certificates=rows.iloc[:0])
    assert worst_string(fewer) is None


def test_an_error_is_called_the_likeliest_only_if_that_is_proved(tiny_study):
    unsure = replace(tiny_study, languages=tiny_study.languages.assign(is_likeliest=False))
    for study, said, sign in ((tiny_study, "Its likeliest", 0), (unsure, "An", 1)):
        figure = likeliest_errors(study)
        assert f" {said} error is after " in figure.reading
        assert figure.body.count("≥ ") == sign * study.languages["likeliest"].notna().sum()


def test_lines_mark_baselines(page, tiny_study):
    plots = data_block(page, "data-plots")

    def at(name):
        return [shape["x0"] for shape in plots[name]["layout"]["shapes"]]

    assert at("variation-0") == [pytest.approx(tiny_study.variation["random_baseline"][0])]
    assert at("stack-0") == [
        pytest.approx(tiny_study.summary["stack_chance"]["chance_at_closing"]),
        pytest.approx(tiny_study.summary["stack_chance"]["ceiling_at_closing"]),
        1.0,
    ]
    chance = tiny_study.task.closing_chance(long=True)
    assert at("after-close-0") == [50.0]
    assert at("accuracy-0") == [pytest.approx(100 * chance.copier), 1.0]
    assert plots["training-0"]["layout"]["shapes"][0]["y0"] == tiny_study.history["floor"][0]


def test_plotly_accepts_every_plot(page):
    assert len(check_plots(page)) == len(page.find("div", class_="plot")) >= len(FIGURES)


def drawn(svg: Node) -> np.ndarray:
    """The shade of each cell of a heat map, painted again from its paths; -1 above the diagonal."""
    n = len(svg.find("text", class_="q"))
    shades = np.full((n, n), -1)
    for path in svg.find("path"):
        if path.attributes["class"].startswith("h"):
            for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path.attributes["d"]):
                shades[int(y), int(x) : int(x) + int(width)] = int(path.attributes["class"][1:])
    return shades


def test_maps_show_the_saved_patterns(page, tiny_study):
    data = data_block(page, "data-patterns")
    buttons = page.find("button", class_="open")
    shown = {(int(b.attributes["data-group"]), int(b.attributes["data-map"])): b for b in buttons}
    expected = [
        (family, layer) for family, n in (("gpt", 2), ("minimal-onehot", 1)) for layer in range(n)
    ]
    assert [group["name"] for group in data["groups"]] == [
        f"{family}, layer {layer}" for family, layer in expected
    ]
    assert len(shown) == 3 * len(expected)
    for index, (family, layer) in enumerate(expected):
        assert data["groups"][index]["seeds"] == [0, 1, 4]
        for position, seed in enumerate((0, 1, 4)):
            weights = tiny_study.patterns(family, seed)[layer, 0].double().numpy()
            lower = [weights[q, k] for q in range(17) for k in range(q + 1)]
            np.testing.assert_allclose(
                np.array(data["groups"][index]["weights"][position]) / 1000, lower, atol=6e-4
            )
            shades = drawn(shown[index, position].find("svg")[0])
            assert (shades[np.triu_indices(17, 1)] == -1).all()
            tril = np.tril_indices(17)
            np.testing.assert_allclose((shades[tril] / (SHADES - 1)) ** 2, weights[tril], atol=0.05)
            assert f"seed {seed}" in shown[index, position].text
    frame = csv(page, "patterns")
    assert len(frame) == 9 * 17 * 18 // 2
    np.testing.assert_allclose(
        frame.groupby(["family", "seed", "layer", "head", "query"])["weight"].sum(), 1, atol=1e-3
    )


def test_rings_mark_the_top_of_the_stack(page):
    data = data_block(page, "data-patterns")
    tokens, stack, tops = data["tokens"], [], []
    for position, token in enumerate(tokens):
        if token in "[(":
            stack.append(position)
        elif token in "])":
            stack.pop()
        tops.append(stack[-1] if stack else -1)
    assert data["top"] == tops
    assert data["depth"] == [0, *2 * (1, 2, 3, 4, 3, 2, 1, 0)]
    rings = page.find("svg")[0].find("path", class_="stack")[0].attributes["d"]
    found = [
        (float(y) - 0.5, round(float(x) - 0.15))
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)a", rings)
    ]
    assert found == [(query, top) for query, top in enumerate(tops) if top >= 0]


@pytest.mark.parametrize(
    ("low", "high", "n", "tie"),
    [
        (-0.9, -0.3, 40, "go against each other"),
        (0.3, 0.9, 20, "rise together"),
        (-0.1, 0.9, 40, "no clear tie"),
        (0.3, 0.9, 8, "no clear tie"),  # so few seeds have misled
    ],
)
def test_a_correlation_is_called_clear_only_if_its_interval_says_so(
    low, high, n, tie, tiny_study, tmp_path
):
    facts = {"spearman": (low + high) / 2, "low": low, "high": high, "n": n}
    summary = {**tiny_study.summary, "balance_and_length": {"minimal-onehot": facts}}
    study = replace(tiny_study, summary=summary)
    page = read_page(write_report(study, tmp_path / "r.html"))
    (reading,) = page.find("section", id="balance")[0].find("p", class_="reading")
    clear, against = tie != "no clear tie", low > 0
    assert f"[{low:+.2f}, {high:+.2f}])." in reading.text
    assert f"{n} seeds of minimal-onehot" in reading.text
    assert tie in reading.text
    assert ("Theory expects the opposite sign." in reading.text) == against
    (finding,) = [each for each in findings(study) if each.title.endswith("balance and length")]
    assert finding.text == reading.text
    assert finding.is_note == (against and not clear)
    notes = [each.text for each in page.find("section", id="summary")[0].find("p", class_="note")]
    assert any(finding.text in each for each in notes) == finding.is_note


def test_runs_that_failed_are_marked(page, tiny_study, tmp_path):
    assert set(tiny_study.models["status"]) == {"reached"}
    assert page.find("p", class_="warning") == page.find("strong", class_="failed") == []
    statuses = ["reached", "not reached", "reached", "reached", "diverged", "reached"]
    study = replace(tiny_study, models=tiny_study.models.assign(status=statuses))
    other = read_page(write_report(study, tmp_path / "r.html"))
    (section,) = other.find("section", id="runs")
    rows = section.find("tbody")[0].find("tr")
    assert [row.children[1].text for row in rows] == statuses
    assert [bool(row.find("strong", class_="failed")) for row in rows] == [
        s != "reached" for s in statuses
    ]
    (summary,) = other.find("section", id="summary")
    (first,) = summary.find("ol", class_="findings")
    assert "target" not in first.text
    assert any("2 of 6 runs ended without it" in p.text for p in summary.find("p", class_="note"))
    assert "2 of 6 runs did not reach their target" in section.find("p", class_="warning")[0].text
    assert "4 of 6 reached" in other.find("p", class_="lead")[0].text
    assert [curve["marker"]["symbol"] for curve in marks(other, "training-0")] == [
        "circle",
        "x",
        "circle",
    ]


def test_without_a_target_all_steps_are_enough(tiny_study, tmp_path):
    training = replace(tiny_study.config.training, target=None)
    models = tiny_study.models.assign(status="not reached")
    study = replace(tiny_study, models=models, config=replace(tiny_study.config, training=training))
    page = read_page(write_report(study, tmp_path / "r.html"))
    assert page.find("p", class_="warning") == page.find("strong", class_="failed") == []
    assert (
        len(data_block(page, "data-plots")["accuracy-0"]["layout"]["shapes"]) == 1
    )  # guessing, but no target


def test_recalled_numbers_stand_beside_measured_ones_with_intervals(page, tiny_study):
    rows = table_rows(page, "recalled")
    assert rows[0] == ["quantity", "reported (recalled)", "measured"]
    facts = tiny_study.variation.set_index(["family", "layer"]).loc[("minimal-onehot", 0)]
    measured = f"{facts['variation']:.2f} [{facts['low']:.2f}, {facts['high']:.2f}]"
    assert rows[1] == ["attention variation, minimal-onehot, layer 0", "0.24", measured]
    unnamed = "attention variation, gpt, of a layer that is not named"
    assert rows[2] == [unnamed, "2.27", "not comparable"]
    (variation,) = page.find("section", id="variation")
    assert "The paper reports 2.27 for gpt (recalled)" in variation.find("p", class_="note")[0].text
    assert rows[3] == ["attention variation, random patterns", "2.85", "3.10 (exact)"]
    assert rows[4][:2] == ["accuracy in distribution, gpt", "97%"]


def test_footer_names_versions_machine_and_seeds(page, tiny_study):
    (footer,) = page.find("footer")
    for name, version in tiny_study.summary["environment"]["versions"].items():
        assert f"{name} {version}" in footer.text
    assert "models 0-1,4; measurements 1000003" in footer.text


# --- odd studies, bad input -----------------------------------------------------------------------


def test_weights_that_are_not_finite_are_said_not_drawn(tiny_study, tmp_path, monkeypatch):
    whole = Study.patterns

    def patterns(study, family, seed):
        found = whole(study, family, seed)
        return found * float("nan") if seed == 4 else found

    monkeypatch.setattr(Study, "patterns", patterns)
    models = tiny_study.models.copy()
    models.loc[models["seed"] == 4, ["loss", "entropy_gap", "balance_violation"]] = float("nan")
    models.loc[models["seed"] == 4, "status"] = "diverged"
    page = read_page(write_report(replace(tiny_study, models=models), tmp_path / "r.html"))
    assert [note.text for note in page.find("p", class_="nomap")] == [
        "seed 4: no pattern, the weights are not finite"
    ] * 3
    assert data_block(page, "data-patterns")["groups"][0]["weights"][2] == [None] * 153
    assert marks(page, "entropy-gap-0")[0]["x"].count(None) == 2


def test_one_seed_and_no_balance(tiny_study, tmp_path):
    """No pairs, no balance: those figures are left out, the others are there."""
    few = {
        name: getattr(tiny_study, name)
        for name in ("models", "heads", "certificates", "languages", "history")
    }
    few = {
        name: table[(table["family"] == "gpt") & (table["seed"] == 0)]
        for name, table in few.items()
    }
    config = replace(tiny_study.config, families=("gpt",), seeds=(0,))
    study = replace(tiny_study, config=config, variation=tiny_study.variation.iloc[:0], **few)
    page = read_page(write_report(study, tmp_path / "r.html"))
    sections = {section.attributes["id"] for section in page.find("section")}
    assert {"variation", "balance"} & sections == set()
    assert {"patterns", "accuracy", "stack", "training"} <= sections
    assert page.find("figure") == []  # no pair to show


@pytest.mark.parametrize(
    ("share", "digits", "said"),
    [
        *((0.5, 1, "50.0%"), (0.9949, 0, "99%"), (0.9999938, 1, "99.99938%"), (1, 1, "100%")),
        *(
            (1 - 9e-10, 2, "99.999999910%"),
            (0.99951, 1, "99.951%"),
            (float("nan"), 1, "not a number"),
        ),
    ],
)
def test_only_what_is_all_is_100_percent(share, digits, said):
    assert percent(share, digits) == said


def test_exact_accuracy_shows_two_digits_of_what_it_lacks():
    assert _exact(0.99999380, 0.99999380) == "99.99938%"
    assert _exact(0.99719962, 0.99719964) == "99.7200%"
    assert _exact(1.0, 1.0) == "100%"
    assert _exact(0.99, 0.9999998) == "99.00% to 99.999980%"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.750652, 0.997716, "75.0% to 99.8%"),
        (0.75096, 0.99701, "75.0% to 99.8%"),  # outwards, so that what is said is true
        (0.0, 0.9999, "0.0% to 99.9900%"),
        (0.99991, 0.99993, "99.9910% to 99.9930%"),
        (0.98, 1.0, "98.0% to 100%"),
        (-0.0, 1.0, "0.0% to 100%"),
    ],
)
def test_bounds_have_the_digits_that_they_tell(low: float, high: float, said: str) -> None:
    assert _exact(low, high) == said


@given(st.floats(0, 1), st.floats(0, 1))
def test_what_is_said_of_bounds_holds(one: float, other: float) -> None:
    low, high = sorted((one, other))
    said = [Decimal(end.rstrip("%")) / 100 for end in _exact(low, high).split(" to ")]
    if len(said) == 2:
        assert said[0] <= Decimal(repr(low))
        assert Decimal(repr(high)) <= said[1]
        assert (said[1] == 1) == (high == 1)
        assert said[1] - said[0] <= Decimal("1.2") * Decimal(high - low) + Decimal("0.002")
