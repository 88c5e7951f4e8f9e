"""What it takes to run a string, and to bound a part: neither is done where the other is less.

In multiplications of a product of matrices, roughly, and from sizes alone: the same question always
takes the same course.
"""

from __future__ import annotations

from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.network import Network

_CALLS = 3_000_000
"""The calls of numpy for one part take as long as so many multiplications,"""
_SWEPT = 4
"""and what is added and compared along arcs so many times as long, as measured."""


def to_run(network: Network, length: int, n_objectives: int) -> int:
    """One string: attention, products with W_O, W_in, W_out and with their sizes, and W_U."""
    config = network.config
    inner, hidden = config.n_heads * config.d_head, _hidden(network)
    products = config.d_model * (2 * inner + 4 * hidden + n_objectives)
    return 3 * length * inner + products + 40 * (config.d_model + hidden)


def to_range(network: Network, graph: StringGraph) -> int:
    """The ranges of one part: of each coordinate that a norm or an activation sees, by head."""
    config, hidden = network.config, _hidden(network)
    norms = (config.ln_c, config.ln_mid, config.ln2, config.ln_final)
    coordinates = config.d_model * sum(norm is not None for norm in norms) + hidden
    swept = len(graph.symbols.tokens) * config.d_head + _costs(graph)
    return _CALLS + _SWEPT * coordinates * config.n_heads * swept


def to_minimise(network: Network, graph: StringGraph, n_objectives: int) -> int:
    """The linear bounds of some objectives on one part, and their columns."""
    config = network.config
    inner = config.n_heads * config.d_head
    patterns = 2 ** min(config.n_heads, 4) if config.n_heads > 1 else 1
    swept = len(graph.symbols.tokens) * inner + _costs(graph)
    products = config.d_model * (_hidden(network) + inner)
    return _SWEPT * n_objectives * (products + patterns * swept)


def _costs(graph: StringGraph) -> int:
    return 3 * len(graph.option) + 4 * len(graph.arc_source)


def _hidden(network: Network) -> int:
    return 0 if network.config.act_fn is None else len(network.weight("b_in").mid)
