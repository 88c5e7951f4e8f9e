"""Check what is claimed of a two-layer transformer on every prefix of a bounded Dyck language.

Copy four files, this one, ``check_bounds.py``, ``check_layer.py`` and ``check_language.py``; they
need numpy and search nothing: ``python check_two_layers.py FILE …``.

*What is proved.* Dyck(k, D) has brackets 2a (opens) and 2a + 1 (closes) of types a < k, nested at
most D deep; BOS is token 2k. One of `CLAIMS` holds after every prefix of up to N brackets that it
speaks of. What may win has a larger logit than all that must not; or one token has the largest
logit of all, in both models.

*The model.* Two layers as `check_layer` has one: up to eight heads, LN_C, norms, an MLP as there,
or none of these; no positions. An embedding may depend on the depth. What wins is read off
behind the second layer alone.

*Theorem.* Attention without positions is a mean. So what the first layer hands on at a bracket is a
function of that bracket (with its depth, if the embedding knows it) and of its profile: how often
each of them has occurred so far. Call bracket and profile a symbol: to the second layer they are
what a token is to a single one. A prefix is a path of nodes (the stack, the profile), BOS first,
whose steps are symbols; it has one symbol after each number of brackets. Prefixes of one last
symbol have one query, and the sums of the second layer's attention are sums along the path.

*Covering.* The prefixes of each length, of each set of tokens that may win, and of each last symbol
have a tree in preorder. The graph is made here, of k, D and N. A node i parts the prefixes: after
as many brackets as symbol i has, those with one of the symbols before the i-th and the others. So
each prefix is in one part. A leaf says who wins on its part, and near which symbols' values the
bound is taken (if it names none, those of the part). The bound is that of `check_bounds`; there,
too, is its theorem.

*Arithmetic.* As in `check_language`: every number is a float64 and a radius. What the first layer
hands on is enclosed operation by operation: |relu(x) - relu(y)| <= |x - y|, |GELU'| < 1.13. The
divisor of LN_C is enclosed by its ends.
"""

import itertools
import sys
from types import SimpleNamespace

import numpy as np

if __package__:
    from tl_dyck.certify import check_bounds as bounds
    from tl_dyck.certify import check_language as base
    from tl_dyck.certify import check_layer as layer
else:  # copied out
    import check_bounds as bounds
    import check_language as base
    import check_layer as layer

Enclosure, need, dot, GROW, U = base.Enclosure, base.need, base.dot, base.GROW, base.U
# an eighth of what `check_bounds` holds, as a prefix has a profile, too; MOST_WORK: multiplications
FORMAT, BOUND, MOST, MOST_WORK = "tl_dyck.two_layers/1", bounds.BOUND, bounds.MOST // 8, 2**32
CLAIMS = {name: base.CLAIMS[name] for name in ("any_token", "closing_only", "valid_token")}
CLAIMS["agree"] = "two models predict the same token"
CLAIMS["head"] = "the prediction stays the same when head {1} of layer {0} attends uniformly"


def joined(parts, shape):
    """Enclosures one behind the other, in a shape."""
    sides = (np.concatenate([getattr(x, side) for x in parts]) for side in ("mid", "rad"))
    return Enclosure(*(side.reshape(shape) for side in sides))


def divided(x, size):
    """Each row over a number of its own."""
    return x * layer.inverse(size)[:, None]


def normed(x, eps):
    """A norm without scale and bias: P x over its root mean square."""
    x = dot("sd,de->se", x, layer.centre(x.mid.shape[1]))
    square = dot("sd,sd->s", x, x) * layer.inverse(Enclosure(float(x.mid.shape[1])))
    return divided(x, layer.root(square + Enclosure(eps)))


def limited(x, floor):
    """LN_C: P x / max(|P x|, C)."""
    x = dot("sd,de->se", x, layer.centre(x.mid.shape[1]))
    size = layer.root(dot("sd,sd->s", x, x))
    # max(·, C) grows with |P x|, so that its ends are those of the ends; likewise 1 / it below
    low, high = np.maximum(size.low, floor), np.maximum(size.high, floor)
    return divided(x, Enclosure((low + high) / 2, (high - low) / 2 * GROW + 4 * U * high))


def activated(x, act_fn):
    """ReLU, GELU or SiLU."""
    if act_fn == "relu":
        # |relu(x) - relu(y)| ≤ |x - y|
        return Enclosure(np.maximum(x.mid, 0), x.rad)
    value = joined([layer.smooth(x.mid.ravel(), {}, act_fn)[0]], x.mid.shape)
    steepest = layer.CURVES[act_fn][2]
    return Enclosure(value.mid, (value.rad + steepest * x.rad) * GROW)


class TwoLayers:
    """A model of the kind above, checked."""

    def __init__(self, configs, weights, k, depth):
        one, two = ({n[2:]: w for n, w in weights.items() if n[0] == i} for i in "01")
        need(len(one) + len(two) == len(weights), "its weights are not of two layers")
        d = one["W_O"].shape[-1]
        # the first layer has no unembedding; `OneLayer` wants one, and this one is never asked
        zeros = {"W_U": np.zeros((d, 1)), "b_U": np.zeros(1)}
        self.first = layer.OneLayer(configs[0], one | zeros, range(2 * k + 1))
        self.configs, self.two, self.n_logits = configs, two, two["b_U"].size
        self.width = sum(w.size for name, w in weights.items() if name != "0.W_E")
        self.has_depth = configs[0]["state"] == "depth"
        states = ["depth" if self.has_depth else "none", "none"]
        known = [each["state"] for each in configs] == states
        known &= not any(layer.PLAIN.keys() & each.keys() for each in configs)
        counted = (k, depth) if self.has_depth else (None, None)
        known &= (configs[0]["n_types"], configs[0]["max_depth"]) == counted
        known &= [each["bos_token"] for each in configs] == [2 * k] * 2
        known &= configs[0]["ln_final"] is None and two["W_O"].shape[-1] == d
        need(known, "its layers are of another kind, or do not fit together")
        need(self.n_logits >= 2 * k, "it has no logit for some bracket")

    def tabulate(self, graph):
        """The second layer's queries, keys, values and residual streams of a graph's symbols."""
        handed = self.handed_on(graph)
        with_rows = self.two | {"W_E": handed.mid}
        self.second = layer.OneLayer(self.configs[1], with_rows, range(len(handed.mid)))
        self.second.w["W_E"] = handed
        # to the second layer a symbol's row is its token; positions and depths are not read
        every = np.arange(len(handed.mid))
        self.second.tabulate(every, every, every)

    def handed_on(self, graph):
        """What the first layer makes of symbols, ``[S, d_model]``."""
        net, w, n_symbols = self.first, self.first.w, len(graph.last)
        tokens, depths = np.array(graph.kinds).T
        net.tabulate(tokens, 0 * tokens, depths)
        width, hidden = self.width + len(tokens) ** 2, "b_in" in w and w["b_in"].mid.size
        fits = n_symbols * width <= MOST_WORK
        # by series in `decimal`, each number takes a hundred microseconds
        fits &= net.c["act_fn"] in (None, "relu") or n_symbols * hidden <= MOST
        need(fits, "its layers are too large for so many prefixes")
        # [last symbol, head, symbol]
        scores = dot("qne,sne->qns", net.q, net.k)
        # a factor for each last symbol and head, which cancels: the largest score is the top
        e = [base.exponential(scores[q, h]) for q, h in np.ndindex(scores.mid.shape[:2])]
        e = joined(e, scores.mid.shape)
        found, step = [], max(1, bounds.MOST // width)
        for first in range(0, n_symbols, step):
            last, counts = (x[first : first + step] for x in (graph.last, graph.counts))
            # [prefix, head, symbol]: E of a symbol, as often as it occurs
            weight = e[last] * Enclosure(counts[:, None])
            total = dot("xns,s->xn", weight, np.ones(len(tokens)))
            o = dot("xns,sne->xne", weight, net.v) * layer.inverse(total)[:, :, None]
            found.append(behind(net, dot("xne,ned->xd", o, w["W_O"]) + w["b_O"], net.r[last]))
        return joined(found, (n_symbols, len(w["b_O"].mid)))


def behind(net, x, r):
    """What a layer hands on, of attention's output and the residual stream before it."""
    c, w = net.c, net.w
    x = limited(x, c["ln_c"]) if c["ln_c"] else x
    x = x + r if c["residual"] else x
    x = limited(x, c["ln_mid"]) if c["ln_mid"] else x
    if c["act_fn"]:
        y = normed(x, c["eps"]) if c["ln2"] else x
        y = y * w["ln2_w"] + w["ln2_b"] if c["ln2"] == "ln" else y
        y = activated(dot("sd,dh->sh", y, w["W_in"]) + w["b_in"], c["act_fn"])
        x = x + dot("sh,hd->sd", y, w["W_out"]) + w["b_out"]
    return x


class PrefixGraph:
    """All prefixes as paths: a node is a stack and a profile, a symbol a bracket and a profile."""

    def __init__(self, facts, has_depth):
        self.k, self.depth, self.claim = (facts[x] for x in ("n_types", "max_depth", "claim"))
        # without depths in the embedding brackets of all depths are one kind
        deep = range(1, self.depth + 1) if has_depth else (0,)
        brackets = itertools.product(deep, range(self.k), (0, 1))
        self.kinds = [
            (2 * self.k, 0),
            # a closing bracket's depth is one less than that of the opening one
            *((2 * a + x, level - x * has_depth) for level, a, x in brackets),
        ]
        number, symbols = {kind: i for i, kind in enumerate(self.kinds)}, {}
        # BOS has occurred once
        start = (1, *[0] * (len(self.kinds) - 1))
        self.nodes, self.arcs = [[((), start)]], []
        symbols[0, start] = 0
        for _ in range(facts["length"]):
            then, arcs = {}, []
            for source, (stack, counts) in enumerate(self.nodes[-1]):
                # k openings and one closing bracket, some microseconds of Python each
                base.WORK.spend(2_500 * (self.k + 1))
                for token, after in self.moves(stack):
                    kind = number[token, len(after) * has_depth]
                    more = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
                    symbol = symbols.setdefault((kind, more), len(symbols))
                    arcs.append((source, then.setdefault((after, more), len(then)), symbol))
            self.nodes.append(list(then))
            self.arcs.append(np.array(arcs, dtype=int).reshape(-1, 3).T)
            size = len(start) * sum(each.shape[1] for each in self.arcs)
            need(size <= bounds.MOST, "it has too many prefixes")
        # shorter profiles first, then by profile: a node's number parts neighbours from neighbours
        order = sorted(symbols, key=lambda each: (sum(each[1]), each[1], each[0]))
        place = np.empty(len(order), dtype=int)
        place[[symbols[each] for each in order]] = np.arange(len(order))
        self.last, counts = (np.array(each) for each in zip(*order, strict=True))
        # less BOS
        self.counts, self.level = counts.astype(float), counts.sum(1) - 1  # in brackets
        for i, (source, target, symbol) in enumerate(self.arcs):
            by_target = np.argsort(target, kind="stable")
            self.arcs[i] = source[by_target], target[by_target], place[symbol[by_target]]

    def moves(self, stack):
        """What may follow a stack, and the stack then."""
        if len(stack) < self.depth:
            yield from ((2 * a, (*stack, a)) for a in range(self.k))
        yield from ((2 * a + 1, stack[:-1]) for a in stack[-1:])

    def may(self, stack):
        """What may win after a stack, sorted; None: whatever wins in all models; (): not asked."""
        if self.claim in ("agree", "head"):
            return None
        follows = [token for token, _ in self.moves(stack)]
        return tuple(x for x in follows if x % 2 or self.claim == "valid_token")

    def losers(self, winner, may, n_logits):
        """The logits that must be smaller."""
        rivals = range(1, 2 * self.k, 2) if self.claim == "closing_only" else range(n_logits)
        return [x for x in rivals if x not in ((winner,) if may is None else may)]

    def groups(self):
        """What is asked, in order: what may win, and the prefixes of one length and last symbol."""
        for n, nodes in enumerate(self.nodes):
            asked = [self.may(stack) for stack, _ in nodes]
            for may in dict.fromkeys(each for each in asked if each != ()):
                ends = np.array([each == may for each in asked])
                # symbols by which prefixes of n brackets may have ended; of none, BOS, symbol 0
                over = self.arcs[n - 1] if n else ()
                for last in np.unique(over[2][ends[over[1]]]) if n else (0,):
                    yield may, PrefixGroup(self, n, int(last), ends)


class PrefixGroup:
    """The prefixes of one length that end with one symbol, in one of some nodes."""

    def __init__(self, graph, n, last, ends):
        self.steps, live = [], ends
        for level in range(n)[::-1]:
            source, target, symbol = graph.arcs[level]
            base.WORK.spend(2 * base.CALL + 50 * source.size)
            # only the last step is bound to the last symbol
            on = live[target] & ((symbol == last) | (level < n - 1))
            live = np.zeros(len(graph.nodes[level]), dtype=bool)
            live[source[on]] = True
            first = np.unique(target[on], return_index=True)[1]
            # live nodes renumbered from 0, as `reduceat` of the step before leaves them
            self.steps.insert(0, (np.cumsum(live)[source[on]] - 1, symbol[on], first))
        at = np.unique(np.concatenate([[0], *(step[1] for step in self.steps)])).astype(int)
        need(len(at) < BOUND, "it has too many prefixes")
        self.steps = [(x, np.searchsorted(at, y), z) for x, y, z in self.steps]
        self.symbols, self.level, self.last = at[None], graph.level[at], np.searchsorted(at, last)
        # a path adds up n + 1 symbols' costs
        self.n_levels, self.additions = n + 1, 4 * (n + 2)
        self.all = np.ones(len(at), dtype=bool)

    def walks(self, parts):
        """The paths of one part."""
        (part,) = parts
        return SimpleNamespace(least=lambda costs: self.walk(costs[0], part.allowed)[None])

    def walk(self, costs, allowed):
        """The least sum of costs, ``[S, n]``, on a path of allowed symbols."""
        n = sum(len(symbol) for _, symbol, _ in self.steps)
        base.WORK.spend(n * costs.shape[1] * 10 + len(self.steps) * base.CALL, n * costs.shape[1])
        costs = np.where(allowed[:, None], costs, np.inf)
        self.costs, self.levels = costs, [costs[:1]]
        for source, symbol, first in self.steps:
            going = self.levels[-1][source] + costs[symbol]
            self.levels.append(np.minimum.reduceat(going, first))
        return self.levels[-1].min(0)

    def parted(self, allowed, i):
        """In two: of the symbols of as many brackets as the i-th the ones before it; the others."""
        over, before = self.level == self.level[i], np.arange(len(self.level)) < i
        return [allowed & ~(over & ~before), allowed & ~(over & before)]


class PrefixMargins(bounds.SameEnd):
    """What a model makes of a group."""

    def __init__(self, group, model):
        net, (at,) = model.second, group.symbols
        tables = {name: getattr(net, name)[at] for name in "rqkv"}
        self.w, self.model = net.w, model
        tables |= {"c": net.c, "w": net.w, "curve": net.curve}
        super().__init__(group, SimpleNamespace(**tables), group.last)

    def wins(self, winner, losers, allowed, near):
        """Whether bounds show that a logit is larger than others on a part."""
        logits = [winner, *losers]
        read = {"W_U": self.w["W_U"][:, logits], "b_U": self.w["b_U"][logits]}
        self.net.w = self.w | read
        if not losers:
            return True
        near = near or np.flatnonzero(allowed)
        part = bounds.Part(self, bounds.wins(0, len(logits)), allowed, None, near)
        self.bounds = bounds.PartBounds([part])
        return bool(self.bounds.settled()[0])


def models(facts, arrays):
    """The model, and the one that it is compared with, if any."""
    k, depth = facts["n_types"], facts["max_depth"]
    weights = {name: x for name, x in arrays.items() if name != "trees" and name[:6] != "other."}
    yield TwoLayers(facts["config"], weights, k, depth)
    if facts["claim"] == "agree":
        other = {name[6:]: x for name, x in arrays.items() if name[:6] == "other."}
        yield TwoLayers(facts["other"]["config"], other, k, depth)
    if facts["claim"] == "head":
        layer, head = facts["head"]
        n_heads = len(weights[f"{layer}.W_Q"]) if layer in (0, 1) else 0
        need(type(head) is int and 0 <= head < n_heads, "it has no such head")
        mask = np.arange(n_heads) != head
        for name in (f"{layer}.W_Q", f"{layer}.b_Q"):
            # queries of 0 make all scores of a head equal: uniform attention
            weights[name] = np.einsum("n,n...->n...", mask, weights[name])
        yield TwoLayers(facts["config"], weights, k, depth)


def asked(facts, arrays):
    """Models, tabulated, and the graph of the prefixes."""
    for name in ("n_types", "max_depth", "length"):
        known = type(facts[name]) is int and 0 <= facts[name] <= base.MOST[name]
        need(known, f"absurd {name}")
    k, depth = facts["n_types"], facts["max_depth"]
    fits = 0 < k * depth < base.LEAF and k**depth <= base.LARGEST
    need(fits, "its language is none, or too large")
    need(facts["claim"] in CLAIMS, "it claims nothing that is known here")
    found = list(models(facts, arrays))
    graph = PrefixGraph(facts, any(each.has_depth for each in found))
    for each in found:
        each.tabulate(graph)
    return found, graph


def says(facts):
    """What a proof proves, as a sentence."""
    claim = CLAIMS[facts["claim"]]
    if facts["claim"] == "head":
        claim = claim.format(*facts["head"])
    said = f"{claim}, after {base.prefixes(facts)}"
    if facts["claim"] == "agree":
        said += f" and {str(facts['other']['model'])[:64]!a}"
    return said


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    need(facts["format"] == FORMAT, f"not of format {FORMAT}")
    found, graph = asked(facts, arrays)
    leaves, numbers = (arrays["trees"] == BOUND).sum(), iter(arrays["trees"].ravel().tolist())
    for may, group in graph.groups():
        margins, todo = [PrefixMargins(group, each) for each in found], [group.all]
        while todo:
            allowed, node, since = todo.pop(), next(numbers, -1), base.WORK.done
            base.WORK.spend(base.CALL)
            if node == BOUND:
                winner, near = next(numbers), [next(numbers) for _ in range(next(numbers))]
                for each in margins:
                    n = each.model.n_logits
                    need(winner in (range(n) if may is None else may), f"{winner} may not win")
                    settled = each.wins(winner, graph.losers(winner, may, n), allowed, near)
                    need(settled, f"not settled: prefixes of {group.n_levels - 1} brackets")
                base.WORK.repeat(leaves - 1, since)
                leaves = 1
            else:
                need(0 <= node < len(allowed), f"node {node} cannot be here")
                todo += group.parted(allowed, node)[::-1]
    need(next(numbers, None) is None, "it has trees of no group")
    return says(facts)


if __name__ == "__main__":
    sys.exit(base.main(how=check))
