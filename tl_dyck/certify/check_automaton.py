"""Check a proof that a one-layer decoder answers every string of an automaton as it should.

Copy five files, this one, ``check_paths.py``, ``check_bounds.py``, ``check_layer.py`` and
``check_language.py``; they need numpy and search nothing: ``python check_automaton.py FILE …``.

*What is proved.* The file has an automaton: to what state each token leads from each state (-1: to
none), and what logit a state asks for, if any. State 0 is the first. After each string of some
lengths that it writes, BOS before it if there is one, the logit that its state asks for is the
largest. Or, with a threshold: where some token may follow, the logits of those that may are above
it, and of the others below.

*Places.* Or the file has parts, each an automaton of strings of one length n, and the order in
which it reads their places, 0 to n - 1: each once, the last one last. What may follow is then no
move of it: with a threshold a state asks for a set of tokens. What a layer without depths
computes is a sum over places, but for the query, which is the last symbol: so it is the same in
that order, if each symbol has the position of its place.

*Covering.* A level is a length, an option a token at a place. From a state (of the automaton, with
the depth of brackets) it leads to one of the next level, so that strings are paths of options as
`check_paths` has them. Each length and each logit, or set, that is asked for then has a tree for
each last symbol; its paths end in the states that ask for it. The rest is the theorem of
`check_bounds`.
"""

import itertools
import sys

import numpy as np

if __package__:
    from tl_dyck.certify import check_language as base
    from tl_dyck.certify import check_paths as paths
else:  # copied out
    import check_language as base
    import check_paths as paths

FORMAT = "tl_dyck.automaton/5"
# without sets as answers of parts, without parts, without thresholds, without leaves of rays
BEFORE = "tl_dyck.automaton/4", "tl_dyck.automaton/3", "tl_dyck.automaton/2", "tl_dyck.automaton/1"
BOUND, MOST, Step = paths.BOUND, paths.MOST, paths.Step


class Automaton(paths.Paths):
    """What an automaton writes; a state is its state, and the depth."""

    formats = FORMAT, *BEFORE

    @classmethod
    def parts(cls, facts, network):
        """The automaton of a file, or each of several, one after the other."""
        if "parts" not in facts:
            yield cls(facts, network)
            return
        # a string has one length: so none is in two parts, and counted twice
        ends = [(part["lengths"][0], part["lengths"][-1]) for part in facts["parts"]]
        apart = all(last < first for (_, last), (first, _) in itertools.pairwise(ends))
        base.need(apart, "a length is in two parts, or they are out of order")
        for part in facts["parts"]:
            own = {name: part[name] for name in ("after", "answers", "lengths")}
            yield cls(facts | own, network, [*part["order"]])

    def __init__(self, facts, network, order=None):
        after, self.answers, written = facts["after"], facts["answers"], facts["written"]
        self.written, self.threshold = written, facts.get("threshold")
        if self.threshold is not None:
            sets = self.answers
            if order is None:  # what may follow are the moves
                rows = (zip(written, row, strict=True) for row in after)
                sets = [[token for token, to in row if to >= 0] for row in rows]
            self.answers = [(*each,) if each else None for each in sets]
        self.lengths, self.network, self.c = facts["lengths"], network, network.c
        self.order = order
        # -1 is no state: the token cannot come there
        states, longest = range(-1, len(after)), max(self.lengths)
        base.need(longest < BOUND, "it has no such automaton: its strings are too long")
        known = all(type(y) is int and y in network.rows for y in written)
        known &= all(type(y) is int and y in states for row in after for y in row)
        known &= len(self.answers) == len(after) and {len(row) for row in after} == {len(written)}
        known &= all(type(y) is int and y >= 0 for y in self.lengths)
        known &= self.lengths == [*range(self.lengths[0], longest + 1)]  # nor is one counted twice
        known &= len({*written}) == len(written)
        if self.threshold is not None:
            known &= type(self.threshold) in (int, float) and abs(self.threshold) < 1e9
            known &= {*written} <= {*range(network.n_logits)}
            known &= all(
                type(y) is int and y in written for each in self.answers for y in each or ()
            )
        room = self.c["n_ctx"] - (self.c["bos_token"] is not None)
        known &= "position" not in self.c["state"] or longest <= room
        base.need(known, "it has no such automaton, or too long strings")
        if order is not None:
            # each place once, and last the query: what attention adds up has no other order
            placed = all(type(y) is int for y in order) and sorted(order) == [*range(longest)]
            placed &= order[-1:] == [longest - 1] and self.lengths == [longest]
            placed &= "depth" not in self.c["state"]  # which is counted from left to right
            base.need(placed, "its places cannot be read in that order")
        # (state, depth) by level; the depth counts only where the network's embedding knows it
        self.reached, options, n = [[(0, 0)]], [], 0
        for level in range(longest):
            then = {}
            for column, token in enumerate(written):
                # nanoseconds of Python: a step, and each state that it leads on from
                base.WORK.spend(5_000 + 300 * len(self.reached[-1]))
                goes = [(after[state][column], depth) for state, depth in self.reached[-1]]
                came = [i for i, (state, _) in enumerate(goes) if state >= 0]
                to = ((goes[i][0], goes[i][1] + self.depth([token])) for i in came)
                to = [then.setdefault(each, len(then)) for each in to]
                if came:
                    options.append(Step(level, level + 1, (token,), came, to))
                n += 1 + len(came)
                # an arc holds a few integers in lists and dictionaries, far more than a number of
                # an array
                base.need(n <= MOST // 8, "its automaton is too large")
            self.reached.append(list(then))
        # 0: the one state before the first token
        self.lay_out(options, max(map(len, self.reached)), 0, longest + 1)
        base.need(self.size * len(self.reached) <= MOST, "its automaton is too large")

    def questions(self):
        """What is asked of the strings of each length, answer by answer."""
        for length in self.lengths:
            base.WORK.spend(200 * len(self.reached[length]))
            # the same options serve all lengths: those that lead further are not looked at
            self.n_levels = length + 1
            asked = [self.answers[state] for state, _ in self.reached[length]]
            for answer in sorted(set(asked) - {None}):
                # none, but for what follows
                self.finals = np.arange(self.size) < 0
                self.finals[: len(asked)] = [each == answer for each in asked]
                yield answer

    def asks(self, target, n):
        """What is positive where a target, of n logits, is answered: rows and constants."""
        if self.threshold is None:
            return super().asks(target, n)
        base.WORK.spend(0, len(self.written) * n)
        # logit - threshold > 0 of those that may follow, threshold - logit > 0 of the others
        signs = np.where(np.isin(self.written, target), 1.0, -1.0)
        rows = signs[:, None] * (np.array(self.written)[:, None] == np.arange(n))
        return rows, -self.threshold * signs

    def before(self, option):
        """How many tokens stand before an option, and the depth there, from each state."""
        depths = np.array([depth for _, depth in self.reached[option.source]], dtype=int)
        # every token is one place: a level is as many tokens as it has
        place = option.source if self.order is None else self.order[option.source]
        return 0 * option.came + place, depths[option.came]

    def says(self, facts, ways):
        """What a proof proves, as a sentence; the automaton is the last of them."""
        shortest = facts.get("parts", [facts])[0]["lengths"][0]
        lengths = f"{shortest} to {self.lengths[-1]} tokens"
        base.need(ways > 0, f"nothing is asked: it speaks of no string of {lengths}")
        by = f"an automaton of {len(self.answers)} states"
        if "parts" in facts:
            by = "automata, one a length, that read their places in the order in the file"
        what = f"{ways:,} strings of {lengths} of {by}, called {str(facts['name'])[:80]!r}"
        if self.threshold is None:
            return f"the logit that its state asks for is the largest after each of {what}"
        follows = "may follow" if self.order is None else "is one that its state asks for"
        exactly = f"of each token, its logit is above {self.threshold} exactly if it {follows}"
        return f"{exactly}, after each of {what}"


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    return paths.check(facts, arrays, Automaton)


if __name__ == "__main__":
    sys.exit(base.main(how=check))
