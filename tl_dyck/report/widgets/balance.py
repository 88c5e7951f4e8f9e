"""Balance violation as a table whose cells are shaded."""

from __future__ import annotations

import math
from typing import Any

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, shown
from tl_dyck.language import DyckLanguage
from tl_dyck.report.heatmap import SHADES, color_bar
from tl_dyck.report.markup import Html, element, scrolling
from tl_dyck.report.widgets.frame import Widget, note


@checked
def balance_heatmap(result: Any) -> Widget:
    """S / P of a balance violation, for closing brackets (rows) and matched pairs before (columns).

    Args:
        result: of `tl_dyck.balance_violation`; its brackets are shown as the default ones.
    """
    if not hasattr(result, "ratio"):
        raise WrongTypeError(f"result must be what balance_violation returns, got {shown(result)}")
    n_depths, deepest, k, _ = result.ratio.shape
    # token 2 i opens type i, 2 i + 1 closes it
    names = DyckLanguage(k, deepest).alphabet
    columns = [(i, at) for at in range(deepest) for i in range(k)]
    over = [element("th", f"depth {at + 1}", colspan=k, scope="colgroup") for at in range(deepest)]
    pairs = [
        element("th", names[2 * i], names[2 * i + 1], scope="col", class_="bracket")
        for i, _ in columns
    ]
    rows = []
    for d in range(n_depths):
        for j in range(k):
            head = [element("th", names[2 * j + 1], scope="row", class_="bracket")]
            if j == 0:
                # one for the k rows of a depth
                head.insert(0, element("th", f"depth {d + 1}", rowspan=k, scope="rowgroup"))
            cells = [_cell(result, d, at, i, j, names) for i, at in columns]
            rows.append(element("tr", head, cells))
    heading = [
        element("tr", element("td", "closing ↓ pair →", colspan=2, rowspan=2), over),
        element("tr", pairs),
    ]
    meaning = element(
        "span",
        "S/P of a closing bracket (row, with its depth) and a matched pair before it (column)",
    )
    caption = element("caption", meaning)
    grid = element(
        "table", caption, element("thead", heading), element("tbody", rows), class_="balance"
    )
    body = [
        element(
            "p",
            element("strong", f"β = {_number(result.beta)}", class_="verdict"),
            " (mean of all cells). ",
            _meaning(result),
        ),
        scrolling(grid),
        color_bar("S/P (square-root scale)", "≥ 1", ring=False),
        note(
            "S: how much the pair adds to the attention output of that query, before normalisation "
            "(Eq. 15). P: what has to be told apart, the least output that still depends on the "
            "right bracket (Eq. 17). Point at a cell for both."
        ),
    ]
    return Widget(
        title="Balance violation",
        # 31 pixels a row of the table, 400 for what stands around it
        height=min(1000, 400 + 31 * n_depths * k),
        body=body,
        data={"strings": [], "maps": []},
    )


def _meaning(result: Any) -> str:
    return (
        "0: no matched pair, anywhere, disturbs what comes after it: "
        "what being right at every length asks for."
        # rounding: the β of a balanced model is 0
        if result.beta < 1e-6
        else "The larger, the more a matched pair that is already closed disturbs what comes after "
        "it; at 1, one pair can outweigh the bracket that is to be closed."
    )


def _cell(result: Any, d: int, at: int, i: int, j: int, names: tuple[str, ...]) -> Html:
    ratio, s, p = (
        float(result.ratio[d, at, i, j]),
        float(result.S[d, at, i, j]),
        float(result.P[d, j]),
    )
    pair = f"“{names[2 * i]}” at depth {at + 1} and its “{names[2 * i + 1]}”"
    tip = (
        f"S/P {_number(ratio)}\nS {_number(s)}: {pair}\nP {_number(p)}: "
        f"query “{names[2 * j + 1]}” at depth {d + 1}"
        if math.isfinite(ratio)
        else f"not finite: {pair}"
    )
    shade = _shade(ratio)
    # below 0.005 two digits would be "0.00"
    text = "–" if not math.isfinite(ratio) else f"{ratio:.2f}" if ratio >= 0.005 else "0"
    # where the text must be light to be read; on a dark page it must be dark a little earlier
    contrast = " strong" if shade >= 14 else " middle" if shade >= 12 else ""
    return element("td", text, class_=f"b{shade}{contrast}", data_tip=tip)


def _shade(ratio: float) -> int:
    """The square root, as in the attention maps, to show small violations.

    1 and more is the last shade.
    """
    if not math.isfinite(ratio):
        return 0
    return round(math.sqrt(min(max(ratio, 0.0), 1.0)) * (SHADES - 1))


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"
