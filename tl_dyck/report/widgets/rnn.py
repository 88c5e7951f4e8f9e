"""A two-layer RNN reading a string, token by token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.reading.inputs import token_texts
from tl_dyck.report.heatmap import Text, color_bar, text_of
from tl_dyck.report.markup import Html, element
from tl_dyck.report.widgets.attention import drawn
from tl_dyck.report.widgets.certificates import output_names, written_in
from tl_dyck.report.widgets.frame import Widget, note
from tl_dyck.report.widgets.strings import check_readable, strip
from tl_dyck.rnn import TwoLayerRNN, export_rnn

# logits that the readout's box lists
_MOST_OUTPUTS = 40


@checked
def rnn_steps(rnn: Any, text: str | Int[Tensor, " pos"]) -> Widget:
    """The two-layer RNN that equals a one-layer model, stepping through a string.

    For each token read: the state of layer 1, the terms exp(q · k_i) that layer 2 has summed for
    this token's query (as shares of their sum Z), and the logits of the readout. See
    `tl_dyck.rnn.machine` for the equations.

    Args:
        rnn: a `TwoLayerRNN`, or a one-layer model to export.
        text: the string, to which BOS is added if the model starts with it; or tokens as they are.

    Raises:
        UnreadableTextError: the string is empty or too long.
        UnsupportedModelError: the model has no two-layer RNN.
    """
    machine = rnn if isinstance(rnn, TwoLayerRNN) else export_rnn(rnn)
    language = written_in(rnn, machine)
    tokens = machine.to_tokens(text) if isinstance(text, str) else text[None].to(machine.device)
    ids = tokens[0].cpu()
    string = check_readable(text_of(ids.tolist(), token_texts(machine, ids, language), language))
    with torch.no_grad():
        states = machine.states(tokens)
        scores = machine.scores(machine.embed(tokens, states), states)[0].double().cpu()
        logits = machine(tokens)[0].double().cpu()
    # [head, query, key]; keys behind a query are not read yet
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    sums = scores.logsumexp(-1)
    # exp(score) / Z, without overflow
    weights = (scores - sums[..., None]).exp().numpy()
    several = len(weights) > 1
    maps = [
        (f"head {head}" if several else "layer 2", pattern) for head, pattern in enumerate(weights)
    ]
    figures, data = drawn(string, maps)
    boxes = [
        _box("state", "Layer 1: state machine"),
        _box("sums", "Layer 2: running sums"),
        _box("logits", "Readout: what comes next"),
    ]
    body = [
        strip(string),
        element("div", boxes, class_="boxes"),
        element(
            "details",
            element("summary", "All steps at once"),
            figures,
            color_bar(),
        ),
        note(
            "Move the slider (arrow keys work), or point at a token: the RNN has read the string "
            "up to there. Bars under the tokens are the terms of layer 2's sum."
        ),
    ]
    data |= {
        "steps": {
            "state": _states(machine, string),
            "logz": [[round(float(value), 3) for value in row] for row in sums.T.tolist()],
            "outputs": output_names(machine, language),
            "logits": [[round(float(value), 3) for value in row] for row in logits.tolist()],
            "chances": np.round(logits.softmax(-1).numpy(), 4).tolist(),
            "most": _MOST_OUTPUTS,
        },
    }
    return Widget(title="A two-layer RNN, step by step", height=600, body=body, data=data)


def _box(name: str, title: str) -> Html:
    return element(
        "section",
        element("h2", title),
        element("div", id=f"step-{name}", class_="step"),
        aria_label=title,
    )


def _states(rnn: TwoLayerRNN, string: Text) -> list[str]:
    """Layer 1's state after each token, in words."""
    kind = rnn.config.state
    depths = rnn.config.language
    depth = depths.depth(torch.tensor(string.ids)).tolist() if depths is not None else []
    said = []
    for position in range(len(string.ids)):
        parts = []
        if "position" in kind:
            parts.append(f"position {position}")
        if "depth" in kind:
            parts.append(f"depth {depth[position]}")
        said.append(", ".join(parts) or "nothing: this model's embedding needs the token alone")
    return said
