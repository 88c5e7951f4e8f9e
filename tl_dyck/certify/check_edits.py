"""Check a proof that a one-layer decoder keeps its prediction on every edit of a string.

Copy five files, this one, ``check_paths.py``, ``check_bounds.py``, ``check_layer.py`` and
``check_language.py``; they need numpy and search nothing: ``python check_edits.py FILE …``.

*What is proved.* The file has a string x, a list of rewritings (what becomes of the ``span`` tokens
at a place; span 0 inserts there) of some kinds, and how many of each kind are allowed. Of disjoint
spans, and with at most one insertion at a gap, which must not lie inside a rewritten span, each
choice makes a string, after BOS if there is one. On all of them the target has the largest logit.

*Covering.* A token has two levels, before its gap and behind it. The options of `check_paths` are
to keep a token, to leave a gap, to rewrite; a state is what is spent, how far places and depths
have moved. The network is that of `check_layer`, the theorem that of `check_bounds`.
"""

import itertools
import math
import sys

import numpy as np

if __package__:
    from tl_dyck.certify import check_language as base
    from tl_dyck.certify import check_paths as paths
else:  # copied out
    import check_language as base
    import check_paths as paths

need, WORK, CALL, BOUND, MOST = base.need, base.WORK, base.CALL, paths.BOUND, paths.MOST
# the two before: without leaves of lists; without leaves of rays
FORMAT, BEFORE = "tl_dyck.edits/4", ("tl_dyck.edits/3", "tl_dyck.edits/2")


class Edits(paths.Paths):
    """The edits of a string; a state is the budget spent, and how far places and depths moved."""

    formats = FORMAT, *BEFORE
    lists = True

    def __init__(self, facts, network):
        self.x, self.budgets, kinds = facts["string"], facts["budgets"], len(facts["budgets"])
        self.network, self.c, self.asked = network, network.c, facts["target"]
        listed = sorted(self.listed(facts["rewrites"]), key=lambda option: option[0])
        counted = np.array(["position" in self.c["state"], 1])
        depths = itertools.accumulate([self.depth([token]) for token in self.x], initial=0)
        # [gap, (place, depth)] in the original string; places count only where positions do
        self.at = np.array([*enumerate(depths)]) * counted
        moves = [
            # how far an edit moves all behind it: what it emits less what it replaces
            (len(emits), self.depth(emits)) * counted + self.at[start // 2] - self.at[end // 2]
            for start, end, _, emits in listed
        ]
        # the last of kinds + 1 is that of keeping, -1 by index, which moves nothing
        most = np.zeros((2, kinds + 1, 2), dtype=int)  # down and up, by an edit of each kind
        for move, (_, _, kind, _) in zip(moves, listed, strict=True):
            most[:, kind] = np.maximum(most[:, kind], [-move, move])
        # as if each edit of the budget moved most: states beyond cannot be reached
        down, up = np.einsum("wkm,k->wm", most, [*self.budgets, 0])
        shape = (*(budget + 1 for budget in self.budgets), *(down + up + 1).tolist())
        # the state of no edit: nothing spent; moves are counted from `down`, so that none is
        # negative
        self.zero, size = (*[0] * kinds, *down.tolist()), math.prod(shape)
        longest = len(self.x) + (self.c["bos_token"] is not None) + up[0]
        # arcs of edits, or nodes: two levels a token, each before and after the end
        need(size * max(len(listed), 4 * (len(self.x) + 1)) <= MOST, "its space is too large")
        fits = not counted[0] or longest <= self.c["n_ctx"]
        need(fits, f"its budgets allow {longest} tokens, and the network reads {self.c['n_ctx']}")
        WORK.spend(len(listed) * (2 * CALL + 60 * size), len(shape) * size)
        self.states, options = np.indices(shape).reshape(len(shape), -1).T, []
        for (source, target, kind, emits), move in zip(listed, moves, strict=True):
            spent = [int(each == kind) for each in range(kinds)]
            to = self.states + np.array([*spent, *move])
            # what leaves the grid spends more than its budget, or starts where no path comes
            here = np.flatnonzero(((to >= 0) & (to < shape)).all(1))
            to = np.ravel_multi_index(to[here].T, shape)
            options.append(paths.Step(source, target, emits, here, to, kind))
        # 2 i before gap i, 2 i + 1 behind it, for the n + 1 gaps
        levels = 2 * len(self.x) + 2
        self.lay_out(options, size, int(np.ravel_multi_index(self.zero, shape)), levels)
        self.finals = np.ones(size, dtype=bool)

    def questions(self):
        """The target."""
        yield self.asked

    def before(self, option):
        """How many tokens stand before an option, and the depth there, from each state."""
        return (self.at[option.source // 2] + self.states[option.came, -2:] - self.zero[-2:]).T

    def says(self, facts, ways):
        """What a proof proves, as a sentence."""
        kinds = [kind for kind, *_ in facts["rewrites"]]
        edits = ", ".join(
            f"{budget} of {kinds.count(kind)} called {name!r:.40}"
            for kind, (name, budget) in enumerate(zip(facts["names"], self.budgets, strict=True))
        )
        texts = dict(zip(facts["tokens"], facts["texts"] or map(str, facts["tokens"]), strict=True))
        between = facts["config"]["separator"]
        text = (" " if between is None else between).join(texts[token] for token in self.x)
        logit = str(self.asked)
        if facts["texts"] and facts["names_logits"]:
            logit += f" ({texts[self.asked]!r})"
        called = f"a string {'called ' * bool(facts['texts'])}{text!r} (at most {edits})"
        return f"logit {logit} is the largest after each of {ways:,} ways of editing {called}"

    def listed(self, rewrites):
        """Options: the level that each starts from, the one it leads to, its kind, its tokens."""
        n, kinds = len(self.x), range(len(self.budgets))
        words = [*self.x, *itertools.chain(*(emits for *_, emits in rewrites))]
        # a node's number, and an option's, has to stay below BOUND: there are 2 n + 1 options
        # beside edits
        # 8 kinds: the grid of states has an axis for each
        few = max(n, len(rewrites), len(words)) <= BOUND // 4 and len(self.budgets) <= 8
        need(few, "it has too many rewritings")
        known = all(type(y) is int and y in self.network.rows for y in words)
        need(known, "a token is none of the network's")
        numbers = all(type(y) is int and 0 <= y <= n + 1 for y in self.budgets)
        need(numbers, "a budget is no number of edits")
        # leave gap i; then keep token i
        yield from ((2 * i, 2 * i + 1, -1, ()) for i in range(n + 1))
        yield from ((2 * i + 1, 2 * i + 2, -1, (token,)) for i, token in enumerate(self.x))
        for kind, start, span, emits in rewrites:
            stands = kind in kinds and 0 <= start <= start + span <= n
            need(stands, "a rewriting is of no kind or place")
            # an insertion leads from before its gap (2 s) to behind it (2 s + 1); a span from
            # behind its gap to
            # before the gap at its end, where something may still be inserted
            yield 2 * start + (span > 0), 2 * (start + span) + (span == 0), kind, (*emits,)


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    return paths.check(facts, arrays, Edits)


if __name__ == "__main__":
    sys.exit(base.main(how=check))
