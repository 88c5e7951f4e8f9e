"""A study's attention patterns: all seeds side by side, and strings on which models go wrong."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from tl_dyck.estimates import ends_text
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.report.heatmap import Text, color_bar, described_map, heat_map, text_in, thousandths
from tl_dyck.report.markup import Html, decimals, element, percent, table
from tl_dyck.report.page import Figure
from tl_dyck.studies import Study


class HeadPatterns(NamedTuple):
    """One head of one family: the maps that are compared, one per seed."""

    name: str
    family: str
    layer: int
    head: int
    weights: Float[np.ndarray, "seed query key"]


class Patterns(NamedTuple):
    """The attention patterns of a study on its probe string, in the order of its families.

    Attributes:
        text: the string.
        seeds: of every family.
        groups: a head each.
        accuracy: of every model, by family and seed; of those that did not learn likewise.
        learned: family and seed of those that learned.
    """

    text: Text
    seeds: list[int]
    groups: list[HeadPatterns]
    accuracy: dict[tuple[str, int], float]
    learned: set[tuple[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Return the data of the page's script: the string, and the maps of each group."""
        groups = [
            {
                "name": group.name,
                "seeds": self.seeds,
                "weights": [thousandths(weights) for weights in group.weights],
            }
            for group in self.groups
        ]
        return {**self.text.to_json(), "groups": groups}

    def to_frame(self) -> pd.DataFrame:
        """One row per weight, those of the lower triangle."""
        # models are causal: the rest is 0
        rows, columns = np.tril_indices(len(self.text.tokens))
        tokens = np.array(self.text.tokens, dtype=object)
        shared = {"query": rows, "key": columns, "query_token": tokens[rows]}
        frames = [
            pd.DataFrame({**shared, "key_token": tokens[columns]}).assign(
                family=group.family,
                layer=group.layer,
                head=group.head,
                seed=seed,
                weight=weights[rows, columns].round(4),
            )
            for group in self.groups
            for seed, weights in zip(self.seeds, group.weights, strict=True)
        ]
        first = ["family", "layer", "head", "seed"]
        return pd.concat(frames, ignore_index=True)[[*first, *shared, "key_token", "weight"]]


def read_patterns(study: Study) -> Patterns:
    """Read the patterns that a study saved."""
    groups = []
    for family in study.config.families:
        weights = [study.patterns(family, seed).float().numpy() for seed in study.config.seeds]
        if len({found.shape for found in weights}) > 1:
            raise CorruptFileError(
                f"the patterns of {family} in {str(study.folder)!r} are not of one shape"
            )
        stacked = np.stack(weights)
        # [seed, layer, head, query, key]
        _, n_layers, n_heads = stacked.shape[:3]
        groups += [
            HeadPatterns(
                name=f"{family}, layer {layer}" + (f", head {head}" if n_heads > 1 else ""),
                family=family,
                layer=layer,
                head=head,
                weights=stacked[:, layer, head],
            )
            for layer in range(n_layers)
            for head in range(n_heads)
        ]
    text = text_in(study.task.language, study.summary["probe_string"])
    accuracy = study.models.set_index(["family", "seed"])["accuracy"]
    return Patterns(
        text=text,
        seeds=list(study.config.seeds),
        groups=groups,
        accuracy=accuracy.to_dict(),
        learned={*accuracy.index[study.learned]},
    )


def all_seeds(study: Study, patterns: Patterns) -> Figure:
    """The patterns of every family, layer and head, all seeds side by side."""
    variation = {(row.family, row.layer): row for row in study.variation.itertuples()}
    # maps beside each other, half of them where there is less room
    # eight a row: smaller maps cannot be read
    wide = min(len(patterns.seeds), 8)
    columns = f"--wide:{wide};--half:{(wide + 1) // 2}"
    parts: list[Html] = [color_bar()]
    for index, group in enumerate(patterns.groups):
        facts = variation.get((group.family, group.layer))
        text = (
            f"variation {facts.variation:.2f} {ends_text(facts.low, facts.high, '.2f')}; random "
            f"{facts.random_baseline:.2f}"
            if facts is not None
            else None
        )
        maps = [
            _map_button(patterns, group, index, position) for position in range(len(patterns.seeds))
        ]
        heading = element("h3", group.name, " ", element("small", text) if text else None)
        parts.append(
            element(
                "div",
                heading,
                element("div", maps, class_="maps", style=columns),
                class_="group",
                data_group=index,
            )
        )
    return Figure(
        name="patterns",
        title="Attention patterns of all seeds",
        reading=_reading(patterns),
        data=patterns.to_frame(),
        body=element("div", parts),
        note=f"Rows are queries, columns keys, on the string {study.summary['probe_string']} after "
        "its start token; every row sums to 1. Rings mark the top of the stack, where a parser "
        "would look. Percentages are accuracies in distribution. Point at a cell to compare it "
        "across seeds; open a map (click or Enter) "
        "to see it large and to walk through it with the arrow keys.",
    )


def two_that_differ(patterns: Patterns) -> Html | None:
    """The two models of one family whose attention differs most: the claim without numbers.

    Only models that learned count.
    """
    pairs = [
        (float(np.square(group.weights[first] - group.weights[second]).sum()), index, first, second)
        for index, group in enumerate(patterns.groups)
        for first, second in combinations(range(len(patterns.seeds)), 2)
        if {(group.family, patterns.seeds[each]) for each in (first, second)} <= patterns.learned
    ]
    pairs = [pair for pair in pairs if np.isfinite(pair[0])]
    if not pairs:
        return None
    _, index, *positions = max(pairs, key=lambda pair: pair[0])
    group = patterns.groups[index]
    maps, said = [], []
    for position in positions:
        seed, weights = patterns.seeds[position], group.weights[position]
        share = percent(patterns.accuracy[group.family, seed])
        said.append(f"seed {seed} is {share}")
        what = f"of {group.name}, seed {seed}"
        maps.append(described_map(patterns.text, weights, (f"seed {seed}", share), what))
    caption = element(
        "figcaption",
        element("p", element("strong", "The two models of one family that differ most. ")),
        element(
            "p",
            f"Both are {group.name}, trained alike but for the seed; {' and '.join(said)} "
            "accurate. Rows are queries, columns keys; darker means more attention (lighter on a "
            "dark page). Rings mark the bracket on top of the stack, "
            "the one that a parser would look at.",
        ),
    )
    return element("figure", element("div", maps, class_="pair"), caption, class_="hero")


def _map_button(patterns: Patterns, group: HeadPatterns, index: int, position: int) -> Html:
    weights, seed = group.weights[position], patterns.seeds[position]
    if not np.isfinite(weights).all():
        return element("p", f"seed {seed}: no pattern, the weights are not finite", class_="nomap")
    share = percent(patterns.accuracy[group.family, seed])
    label = f"{group.name}, seed {seed}: {share} accurate; {patterns.text.in_words(weights)}. Open."
    picture = heat_map(patterns.text, weights, (f"seed {seed}", share))
    return element(
        "button",
        picture,
        type="button",
        class_="open",
        aria_label=label,
        data_group=index,
        data_map=position,
    )


def _reading(patterns: Patterns) -> str:
    spread = []
    for group in patterns.groups:
        values = [patterns.text.on_top(weights) for weights in group.weights]
        finite = [value for value in values if np.isfinite(value)]
        if finite:
            spread.append((max(finite) - min(finite), min(finite), max(finite), group))
    if not spread:
        return "No pattern is finite."
    _, low, high, group = max(spread, key=lambda entry: entry[0])
    return (
        f"All models do the same task, yet they attend differently: in {group.name}, for one, "
        f"seeds put from {percent(low, 0)} to {percent(high, 0)} of a closing bracket's attention "
        "on the top of the stack."
    )


# --- strings on which models go wrong -------------------------------------------------------------


def _on(study: Study, weights: Tensor, text: str, label: str, what: str) -> Html:
    """The mean over heads of a saved pattern, on the string that it is of."""
    string = text_in(study.task.language, text)
    if weights.shape[-1] != len(string.tokens):
        raise CorruptFileError(
            f"the saved patterns of {what} in {str(study.folder)!r} are not of {text}"
        )
    # [head, query, key]
    mean = weights.float().numpy().mean(0)
    return described_map(string, mean, (label,), f"of {what} on {text}")


def worst_string(study: Study) -> Figure | None:
    """The prediction that insertions hurt most, with attention before and after.

    It is the most wrong one, or the least right; None if no model can be certified.
    """
    rows = study.certificates
    if rows.empty:
        return None
    row = rows.loc[rows["margin_seen"].idxmin()]
    name, moved = f"{row['family']} seed {row['seed']}", row["prefix"] != row["worst_string"]
    weights = study.certificate_patterns(str(row["family"]), int(row["seed"]))
    maps = [
        _on(study, weights["original"], str(row["prefix"]), "as it was", name),
        _on(study, weights["worst"], str(row["worst_string"]), "after the insertion", name),
    ]
    edits = element("p", "The insertion: ", element("code", str(row["worst_edits"])))
    wrong = row["status"] == "refuted"
    return Figure(
        name="worst-string",
        title="The string that hurts most" if wrong else "The closest call",
        reading=f"After {row['prefix']} only {row['target']} closes. "
        f"{name} {'is furthest from saying so' if wrong else 'says so with the least to spare'}"
        f"{' once brackets are inserted' * bool(moved)}: after {row['worst_string']} that "
        f"logit is {abs(row['margin_seen']):.3g} "
        f"{'below' if wrong else 'above'} the largest other one.",
        data=rows.loc[[row.name]],
        body=element("div", [color_bar(), edits, element("div", maps, class_="pair")]),
        note="The string of all those searched on which the right closing bracket fares worst, and "
        "the model's attention (layer 0, its only one; mean over heads) on the prefix and on that "
        "string. Rows are queries, columns keys; rings mark the top of the stack.",
    )


def likeliest_errors(study: Study) -> Figure | None:
    """Accuracy sampled and counted, and attention on the likeliest error of the best model."""
    if study.languages.empty:
        return None
    merged = study.languages.merge(study.models, on=["family", "seed"], suffixes=("", "_of_run"))
    reading, shown = _likeliest(study, merged)
    return Figure(
        name="likeliest-errors",
        title="Exact accuracy, and the likeliest error",
        reading=reading,
        data=study.languages,
        body=element("div", _exact_table(study, merged), shown),
        note="The likeliest error is the most probable prefix that the model continues wrongly; ≥ "
        "marks one that is likely, where likelier ones are not ruled out. "
        "The pattern is of layer 0, the mean over heads. Rows are queries, columns "
        "keys; rings mark the top of the stack. A proof says that every prefix up to the length is "
        "right; the command under “How this was made” checks them all.",
    )


def _likeliest(study: Study, merged: pd.DataFrame) -> tuple[str, Html | None]:
    """A sentence on the most accurate model that is refuted, and its attention on that error."""
    refuted = merged.dropna(subset=["likeliest"])
    if refuted.empty:
        return "No model is wrong on any prefix that was decided.", None
    row = refuted.loc[refuted["accuracy"].idxmax()]
    name, text, language = (
        f"{row['family']} seed {row['seed']}",
        str(row["likeliest"]),
        (study.task.language),
    )
    weights = study.language_pattern(str(row["family"]), int(row["seed"]))
    shown = _on(study, weights, text, f"seed {row['seed']}", name)
    right = language.alphabet[int(language.right_bracket(language.parse(text))[-1])]
    reading = (
        f"{name} closes {percent(float(row['accuracy']))} of sampled brackets right. "
        f"{'Its likeliest' if row['is_likeliest'] else 'An'} error is after {text}: there {right} "
        f"closes, and {row['predicted']} has the largest logit."
    )
    return reading, element("div", color_bar(), element("div", shown, class_="pair"))


def _exact_table(study: Study, decided: pd.DataFrame) -> Html:
    """Accuracy sampled and counted, likeliest error and proof of every model that was decided."""
    rows, proofs = [], study.proofs()
    for row in decided.itertuples():
        # not NaN
        known = row.accuracy_low == row.accuracy_low
        found = isinstance(row.likeliest, str)
        proof = proofs.get((row.family, row.seed))
        rows.append(
            (
                f"{row.family} seed\u00a0{row.seed}",
                percent(row.accuracy, 2),
                _exact(row.accuracy_low, row.accuracy_high) if known else "–",
                f"{row.proved_to}",
                element("code", row.likeliest) if found else "none",
                f"{'' if row.is_likeliest else '≥ '}{row.probability:.1e}" if found else "–",
                element("span", "kept", title=proof.relative_to(study.folder).as_posix())
                if proof is not None
                else "–",
            )
        )
    return table(
        "Accuracy on closing brackets in distribution, sampled and counted",
        (
            *("model", "sampled", "exact", "proved to length", "likeliest error"),
            *("its probability", "proof"),
        ),
        rows,
        numeric=(1, 2, 3, 5),
    )


def _exact(low: float, high: float) -> str:
    """A share, or bounds of it: digits that tell it from 1, or that the bounds tell.

    Bounds are rounded outwards, so that what is said of them is true.
    """
    # closer bounds are one number at the digits that are shown
    if high - low > 1e-6:
        digits = max(1, 1 - math.floor(math.log10(100 * (high - low))))  # two of their distance
        ends = _rounded(low, digits, ROUND_FLOOR), _rounded(high, digits, ROUND_CEILING)
        # "to 100%" is said only of a bound of 1
        if ends[1] == 100 and high < 1:
            ends = ends[0], _rounded(high, decimals(high), ROUND_CEILING)
        return f"{ends[0]}% to {'100' if high == 1 else ends[1]}%"
    share = (low + high) / 2
    # four digits where a share is counted exactly: one in a million shows
    return percent(share, max(4, decimals(share)))


def _rounded(share: float, digits: int, way: str) -> Decimal:
    """A percentage with so many digits, rounded up or down."""
    exact = 100 * Decimal(repr(abs(share)))  # no -0; 0.98 is 98 %, though its float is less
    return exact.quantize(Decimal(1).scaleb(-digits), rounding=way)
