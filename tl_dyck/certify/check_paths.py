"""Strings as paths, and the trees of a proof that part them until a bound settles each part.

Copied with ``check_edits.py`` or ``check_automaton.py``, which say what the paths are.

*Covering.* Strings are cut into levels. An option leads from a level to a later one, and from
states to states, and emits tokens. Strings are paths of options. Each passes every step from a
level to the next inside exactly one option. So if the options over a step are parted in two, each
path is in one part. The file has for each last symbol a tree in preorder: the pair (step, j) parts
the options over that step into those before the j-th and the rest; a leaf says that the bound of
`check_bounds` settles its part, and names options of a string near whose values it is taken.
"""

import itertools
import math

import numpy as np

if __package__:
    from tl_dyck.certify import check_bounds as bounds
    from tl_dyck.certify import check_language as base
    from tl_dyck.certify import check_layer as layer
else:  # copied out
    import check_bounds as bounds
    import check_language as base
    import check_layer as layer

need, WORK, CALL, MOST = base.need, base.WORK, base.CALL, bounds.MOST  # CALL is a step of numpy
BOUND, RAYS, LIST = bounds.BOUND, bounds.RAYS, bounds.LIST
PARTS = 16  # leaves side by side, so that they share calls of numpy


class Step:
    """What may be done from a level to a later one, and to which state it leads from which."""

    def __init__(self, source, target, emits, came, to, kind=-1):
        WORK.spend(CALL + 500 * len(came))
        self.source, self.target, self.emits, self.kind = source, target, emits, kind
        order = np.argsort(to, kind="stable")
        self.came, self.to = (np.array(each, dtype=int)[order] for each in (came, to))


class Paths:
    """Strings as paths of options."""

    order = None  # in which places are read, if it is not their own
    lists = False  # whether its trees may have leaves that list strings

    @classmethod
    def parts(cls, facts, network):
        """What a file is about, one after the other."""
        yield cls(facts, network)

    def lay_out(self, options, size, origin, n_levels):
        """Number the symbols: token, position and depth."""
        self.options, self.size, self.origin, rows = options, size, origin, {}
        self.n_levels, self.all = n_levels, np.ones(len(options), dtype=bool)
        # options stand in order of their source: so those of a level stand together
        ends = [(each.source, each.target) for each in options]
        self.source, self.target = np.array(ends, dtype=int).reshape(-1, 2).T
        # no path adds up more numbers; what `least` allows for their rounding grows with it
        # each option once at most; 4 for the products and sums that a cost itself was made by
        self.additions = 4 * sum(len(each.emits) + 1 for each in options)
        bos, positions = self.c["bos_token"], "position" in self.c["state"]
        self.start = None if bos is None else rows.setdefault((bos, 0, 0), len(rows))
        for option in options:
            WORK.spend(CALL + 500 * len(option.came) * len(option.emits), len(rows))
            places, before = self.before(option)
            option.index = np.zeros((len(option.emits), len(places)), dtype=int)
            for j, token in enumerate(option.emits):
                # the position of the j-th token that is emitted; BOS has position 0, and shifts the
                # others
                p, q = places + j + (bos is not None), 0 * places
                if self.depth([token]):  # of opening brackets from 1 to D on, of others one less
                    q, closes = before + self.depth(option.emits[: j + 1]), token % 2
                    q = np.clip(q, 1 - closes, self.c["max_depth"] - closes)
                p = np.clip(p, 0, self.c["n_ctx"] - 1) * positions  # no string is longer
                seen = zip(p.tolist(), q.tolist(), strict=True)
                option.index[j] = [rows.setdefault((token, *each), len(rows)) for each in seen]
        # 3: token, position, depth
        self.symbols = np.array(list(rows), dtype=int).reshape(-1, 3).T
        self.arcs = self.by_level()

    def by_level(self):
        """Arcs to each level: whence, where, of what option, the last symbol or -1, symbols, runs.

        A node is 2 (level · size + state); 1 more where the string has ended, so that it emits
        nothing more. A run is of arcs to one node, and begins where it is said.
        """
        none, most = len(self.symbols[0]), max((len(x.emits) for x in self.options), default=0)
        n = 2 * sum(len(each.came) for each in self.options)
        WORK.spend(2 * CALL * len(self.options) + 200 * n * (5 + most), n * (5 + most))
        found = [np.zeros((4 + most, 0), dtype=int)]
        for i, option in enumerate(self.options):
            source = 2 * (option.source * self.size + option.came)
            target = 2 * (option.target * self.size + option.to)
            # symbols in rows, as many as the most that is emitted at once; `none` costs nothing
            table = np.full((4 + most, len(source)), none)
            table[:3], table[3] = [source, target, 0 * source + i], -1
            table[4 : 4 + len(option.emits)] = option.index
            ending = table.copy()
            ending[1] += 1
            if option.emits:  # what is emitted last decides with which symbol a string ends
                ending[3] = option.index[-1]
            else:
                ending[0] += 1
            found += [table, ending]
        table = np.concatenate(found, axis=1)
        table = table[:, np.argsort(table[1], kind="stable")]
        levels = np.arange(1, self.n_levels) * 2 * self.size
        parts = np.split(table, np.searchsorted(table[1], levels), axis=1)
        return [(*part[:4], part[4:], runs(part[1])) for part in parts]

    def depth(self, tokens):
        """What tokens add to the depth, if the network counts it."""
        brackets = 2 * (self.c["n_types"] or 0)
        return sum(1 - 2 * (token % 2) for token in tokens if token < brackets)

    def ends(self):
        """Symbols that a string may end with."""
        n = sum(len(source) for source, *_ in self.arcs)
        WORK.spend(CALL * len(self.arcs) + 50 * n, 2 * self.n_levels * self.size)
        live, found = np.zeros((self.n_levels, self.size, 2), dtype=bool), set()
        # 1: where the string has ended
        live[-1, :, 1] = self.finals
        live = live.ravel()
        # backwards, through what may follow the last token
        # arcs[0] are none: nothing leads to the first level
        for source, target, _, ended, *_ in self.arcs[self.n_levels - 1 : 0 : -1]:
            on = live[target]
            found.update(ended[on].tolist())
            live[source[on & (ended < 0)]] = True
        if self.start is not None and live[2 * self.origin + 1]:
            found.add(self.start)
        return sorted(found - {-1})

    def ways(self):
        """How many strings there are, as often as they are made."""
        counts = self.counts(self.all)
        return sum(counts[self.n_levels - 1][self.finals].sum() for _ in self.questions())

    def counts(self, allowed):
        """How many strings of allowed options end in each state of each level."""
        # integers of Python are slow, and grow by some bits a level
        levels, n = len(self.arcs), sum(len(source) for source, *_ in self.arcs)
        WORK.spend(CALL * levels + (200 + levels // 4) * n, 4 * levels * self.size)
        ways = np.zeros(2 * levels * self.size, dtype=object)
        ways[2 * self.origin] = 1
        # BOS alone is a string, too, that ends with BOS
        ways[2 * self.origin + 1] = int(self.start is not None)
        for source, target, option, _, _, first in self.arcs:
            if len(first):
                ways[target[first]] = np.add.reduceat(ways[source] * allowed[option], first)
        # odd nodes: the string has ended
        return ways[1::2].reshape(levels, self.size)

    def parted(self, allowed, step, j):
        """Allowed options in two: of those over a step the ones before the j-th, and the others."""
        over = (self.source <= step) & (step < self.target)
        before = np.arange(len(over)) < j
        # options not over the step stay in both parts: each path takes exactly one that is over it
        return [allowed & ~(over & ~before), allowed & ~(over & before)]

    def asks(self, target, n):
        """What is positive where a target, of n logits, is answered: rows and constants."""
        need(type(target) is int and 0 <= target < n, "its target is no logit")
        return bounds.wins(target, n)

    def path(self, named):
        """Symbols of a string of options that are named, or else first of their level."""
        WORK.spend(self.n_levels * (CALL + len(self.options)))
        level, state, found = 0, self.origin, [] if self.start is None else [self.start]
        first = np.searchsorted(self.source, np.arange(self.n_levels)).tolist()
        while level < self.n_levels - 1:
            here = range(*first[level : level + 2])
            # any string will do: the bound holds wherever it is taken, and is only less tight
            # elsewhere
            option = self.options[next((i for i in here if i in named), here[0])]
            (at,) = np.flatnonzero(option.came == state)
            found += option.index[:, at].tolist()
            level, state = option.target, option.to[at]
        return found

    def walks(self, parts):
        """The paths of parts."""
        return PartWalks(self, parts)

    def at_once(self):
        """How many leaves are checked side by side: few enough for the memory that they take."""
        width = 2 * self.size * self.n_levels + sum(len(source) for source, *_ in self.arcs)
        # a quarter: four arrays of that width are held at once
        return max(1, min(PARTS, MOST // 4 // width))


def runs(numbers):
    """Where runs of equal numbers begin."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))


class PartWalks:
    """The paths of parts, side by side, through what is on some path of a part alone."""

    def __init__(self, space, parts):
        n, size, last = len(parts), space.size, np.array([[part.group.last] for part in parts])
        allowed, arcs = np.array([part.allowed for part in parts]), space.arcs[1 : space.n_levels]
        # 2: each state before and after the string's end
        nodes, width = 2 * size * space.n_levels, sum(len(source) for source, *_ in arcs)
        WORK.spend(CALL * len(arcs) + 20 * n * (nodes + width), n * (nodes + width))
        # [part, node]: what a path comes to, then what of that it also leads on from to the end
        reached = np.zeros((n, nodes), dtype=bool)
        start = 2 * space.origin + np.arange(2)
        # BOS alone is a string, too, that ends with BOS
        reached[:, start] = np.concatenate([last == last, last == space.start], axis=1)
        may = []
        for source, target, option, ended, _, first in arcs:
            may.append(reached[:, source] & allowed[:, option] & ((ended < 0) | (ended == last)))
            if len(first):
                reached[:, target[first]] = np.logical_or.reduceat(may[-1], first, axis=1)
        # of the last level the odd ones
        ends = nodes - 2 * size + 2 * np.arange(size) + 1
        live = np.zeros_like(reached)
        live[:, ends] = reached[:, ends] & [part.finals for part in parts]
        on = []
        for (source, target, *_), each in zip(arcs[::-1], may[::-1], strict=True):
            part, arc = np.nonzero(each & live[:, target])
            live[part, source[arc]] = True
            on.append((part, arc))
        # nodes are numbered in the order in which paths come to them
        number = np.zeros(reached.shape, dtype=int)
        part, at = np.nonzero(live[:, start])
        number[part, start[at]] = np.arange(len(part))
        # a row of costs for each part and symbol, and for each part one more, of 0
        self.rows = 1 + len(space.symbols[0])
        self.origins = part * self.rows + (self.rows - 1 if space.start is None else space.start)
        self.steps, self.size = [], len(part)
        steps = zip(arcs, on[::-1], strict=True)
        for (source, target, option, _, symbols, _), (part, arc) in steps:
            if len(arc):
                first = runs(part * nodes + target[arc])
                number[part[first], target[arc[first]]] = self.size + np.arange(len(first))
                rows = part * self.rows + symbols[:, arc]
                came = number[part, source[arc]]
                self.steps.append((self.size, came, rows, first, part, option[arc]))
                self.size += len(first)
        self.part, at = np.nonzero(live[:, ends])
        self.ends = number[self.part, ends[at]]

    def least(self, costs):
        """The least sum of costs of symbols, ``[part, symbol, n]``, on a path of each part."""
        parts, _, n = costs.shape
        most = max((len(came) for _, came, *_ in self.steps), default=0)
        # a step takes what came, and adds a cost for each token that an option emits
        moves = sum((1 + len(rows)) * len(came) for _, came, rows, *_ in self.steps)
        WORK.spend(CALL * len(self.steps) + 4 * n * moves, n * (self.size + 2 * most))
        # the last row of a part is 0: what is emitted where nothing is
        self.costs = np.concatenate([costs, np.zeros((parts, 1, n))], axis=1).reshape(-1, n)
        self.sums, room = np.empty((self.size, n)), np.empty((2, most, n))
        self.sums[: len(self.origins)] = self.costs[self.origins]
        for at, came, rows, first, *_ in self.steps:
            # "clip" looks at no index: all are there; so it is quicker into room that is there, too
            going, more = room[:, : len(came)]
            self.sums.take(came, 0, going, "clip")
            for row in rows:
                going += self.costs.take(row, 0, more, "clip")
            np.minimum.reduceat(going, first, out=self.sums[at : at + len(first)])
        found, first = np.full((parts, n), math.inf), runs(self.part)
        if len(first):
            found[self.part[first]] = np.minimum.reduceat(self.sums[self.ends], first)
        return found

    def strings(self, most):
        """Every path of the only part, as symbols; ProofError if there are more."""
        # how many come to each node; from every node some lead on to the end, so that none has more
        counts = np.ones(self.size)
        for at, came, _, first, *_ in self.steps:
            counts[at : at + len(first)] = np.add.reduceat(counts[came], first)
        n = counts[self.ends].sum()
        need(n <= most, f"it lists more than {most:,} strings")
        WORK.spend(n * (CALL + 500 * len(self.steps)), n * len(self.steps) * len(self.steps))
        # nodes that are origins, then those of each step: what paths come to them emitted
        found = [[() if row == self.rows - 1 else (row,)] for row in self.origins.tolist()]
        for _, came, rows, first, *_ in self.steps:
            for start, end in itertools.pairwise([*first.tolist(), len(came)]):
                emitted = [(i, tuple(rows[:, i].tolist())) for i in range(start, end)]
                found.append([(*path, *new) for i, new in emitted for path in found[came[i]]])
        every = [path for end in self.ends.tolist() for path in found[end]]
        return [[each for each in path if each < self.rows - 1] for path in every]


def check(facts, arrays, kind):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    need(facts["format"] in kind.formats, f"not of format {kind.formats[0]}")
    weights = {name: array for name, array in arrays.items() if name != "trees"}
    net = layer.OneLayer(facts["config"], weights, facts["tokens"])
    nodes = iter(arrays["trees"].tolist())
    ways, leaves = 0, (arrays["trees"] >= LIST).sum()
    for space in kind.parts(facts, net):
        net.tabulate(*space.symbols)
        leaves = forest(space, nodes, leaves)
        ways += space.ways()
    need(next(nodes, None) is None, "it has trees of no group")
    return space.says(facts, ways)


def forest(space, nodes, leaves):
    """Check the trees of a space, which are next; how many leaves are still to be reckoned with."""
    net, groups, batch = space.network, {}, []
    for target in space.questions():
        asked = space.asks(target, net.n_logits)
        need(len(asked[0]), "nothing is asked: it has one logit, which has no rival")
        for last in space.ends():
            if last not in groups:
                WORK.spend(0, (len(groups) + 1) * len(space.symbols[0]) * net.n_heads)
                groups[last] = bounds.SameEnd(space, net, last)
            todo = [space.all]
            while todo:
                allowed, step = todo.pop(), next(nodes)
                WORK.spend(CALL)
                if step in (BOUND, RAYS) or (step == LIST and space.lists):
                    # a leaf: how many options it names, then these
                    named = {next(nodes) for _ in range(next(nodes))}
                    path = space.path(named)
                    part = bounds.Part(groups[last], asked, allowed, space.finals, path)
                    batch.append((part, step))
                    if len(batch) >= space.at_once():
                        leaves, batch = settle(batch, leaves), []
                else:
                    # reversed, since the last is taken first: trees stand in preorder
                    todo += space.parted(allowed, step, next(nodes))[::-1]
        # the strings of the next question may have another length
        leaves, batch = settle(batch, leaves), []
    return leaves


def settle(batch, leaves):
    """Check leaves; how many are still to be reckoned with."""
    since = WORK.done
    for leaf in {leaf for _, leaf in batch}:
        parts = [part for part, its in batch if its == leaf]
        if leaf == LIST:
            settled = [not bounds.open_strings(part) for part in parts]
        else:
            settled = bounds.PartBounds(parts, leaf == RAYS).settled()
        for part, shown in zip(parts, settled, strict=True):
            need(bool(shown), f"not settled: strings that end with symbol {part.group.last}")
    if not batch:
        return leaves
    # the first ones say what all will cost about, before the others are begun; then no more
    WORK.repeat(max(0, leaves / len(batch) - 1), since)
    return 0
