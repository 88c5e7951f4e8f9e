"""The exact certifier: shortest paths, then branch and bound with exactly minimised linear bounds.

Knows: strings as paths of a graph, and what a network can give on them at least.
Does not know: brackets, languages and tasks (`tl_dyck.language`, `tl_dyck.tasks`).

`minimise.minimise` is the way in; `tl_dyck_hooks.certifiers.exact` makes a certificate of what it
returns.

**Reading order.** Each file uses only those above it.

- `balls`: numbers with a proved error; every inequality below holds for numbers as they are
  computed.
- `unembedding`: objectives of the vector that the unembedding reads, for some or all of them.
- `symbols`: tokens with their states, and their scores, keys and values, whatever the positions.
- `network`: the RNN's functions in balls: the readout, objectives on strings.
- `lower_layer`: a layer without positions below the network, as the state machine that it then has.
- `graph`: all strings of a space as paths, with the states of the RNN's first layer.
- `layout`: how that graph comes about: lattice times state machine, closing arcs, order.
- `walks`: the same of an automaton: all its strings of a length.
- `paths`: shortest paths over it for many costs at once; counting and listing paths.
- `attention`: weights of symbols per group, and costs whose shortest path is the least of an
  additive functional.
- `clusters`: ranges of those outputs for groups whose last symbols differ little, together.
- `region`: exact ranges of the attention's outputs on a part of the strings, in any direction.
- `functional`: linear functionals of a layer's vector, carried backwards with their rounding.
- `stages`: the readout's vectors (W_O, residual, norms): ranges and linear lower bounds of
  functionals of each.
- `mlp`: the MLP as such a stage, and lines below and above its activation.
- `gated`: one whose hidden units are products of an activation and an affine function.
- `readout`: the chain of stages with the unembedding on top: a linear lower bound of the
  objectives.
- `columns`: the least value of a linear bound on any string, by shortest paths.
- `single`: thousands of strings in single precision, with a bound of each one's error.
- `incumbent`: the strings that were run, and the worst of them.
- `linear`: one head and a linear readout: the minimum by Dinkelbach's method, without search.
- `parts`: what a search remembers of the strings that it has not settled.
- `splits`: how a part of the strings is split in two.
- `work`: what running a string takes, and bounding a part.
- `search`: branch and bound, for everything else.
- `loss_counts`: how many strings lose, counted along paths.
- `mass`: the same by parts, of which all lose or none does.
- `minimise`: the driver: which of the two, and what is known when time runs out.

**Question.** Given a string x, a space S(x) of strings around it (x itself included), and functions
g_1 … g_K of the logits after the last token (for a verdict on target c: logit_c - logit_j for
j ≠ c), find m = min over k and y in S(x) of g_k(y), or only its sign. The network is the two-layer
RNN that equals the transformer; its weights, float32 or float64, are real numbers here, and the
arithmetic is exact but for rounding, which is bounded below.

**Additivity** (`graph`, `attention`). Group the strings by their last *symbol* (token and state).
In a group the query is fixed, so symbol s has a fixed weight E_s > 0 per head, and head h returns
o^h(y) = N^h / Z^h, N^h = Σ_{s in y} E^h_s v^h_s, Z^h = Σ_{s in y} E^h_s. A string is a path in a
graph whose nodes are (place in x, budget spent, state), and sums over symbols add up along it. So
min over y of Σ_h Σ_s E^h_s (D^h·v^h_s + τ^h) is *one shortest path*, exact, and its argmin is a
string; K objectives are K columns of one sweep.

**One head, linear readout** (`linear`). There g_k = D_k·N/Z + c_k. As Z > 0, g_k(y) < t iff Σ E_s
(D_k·v_s + c_k - t) < 0: a shortest path tells whether m < t, for any t. Dinkelbach's iteration
(t := value of the best path) ends at m: sound and complete without search.

**Other readouts** (`search`). A *part* is a group with a set of allowed emissions. For a part:

1. *Ranges* (`region`). For a direction D and t = D·o(centre): D·o - t = Σ E (D·v - t) / Z lies
   between r_min/Z and r_max/Z, r_min and r_max shortest paths, Z in its exact range. Where signs
   of ReLUs are all that is asked, a box around o, shared by similar groups (`clusters`), is tried
   first: it settles nearly all parts of `benchmarks/bench_certify.py`.
2. *Linear lower bound* (`stages`, `mlp`, `readout`). On these ranges every non-linear step is
   replaced by a linear function that is nowhere above it: an activation by a chord or tangent (for
   a ReLU, CROWN's), a norm by a tangent of the convex function that it multiplies (both sides of
   g ≥ t are multiplied by the positive σ, so no division is bounded). Composed:
   scale(y)·(g_k(y) - t) ≥ Σ_h D^h·o^h(y) + const, for all y of the part.
3. *Minimise it exactly* (`columns`). One head: its sign is that of an additive functional, one
   path. H heads: a sum of ratios r^h/Z^h with Z^h in [low, high]; r/Z ≥ min(r/low, r/high), so the
   least of 2^H paths bounds it; tight where r^h = 0, which is so on the string at the centre.
4. The argmin string is run through the network (`incumbent`): it may be a counterexample; and
   it tells how loose the bound is.
5. If the bound is still below what is wanted, the strings on which the *linear bound* is below it
   are listed, if there are few (they are the only candidates), and run. Otherwise the part is
   *split* (`Brancher`): some step of x is passed by one set of options in one half and by the rest
   in the other, where what they do to the attention's output differs most.

With one head and LN_C (Eq. 6 models) a projective view of o is used as well: where |P x| ≥ C only
the direction of Σ E P(W_O v + b_O) counts, to which a balanced pair adds nothing (Wen et al. 2023,
Theorem 1).

**Soundness.** Let "closed" be the least bound or value of all parts that were given up as settled.
*Invariant*: every y in S(x) is in an open part, with g(y) ≥ that part's bound, or g(y) ≥ closed.
Initially all groups are open, with bound -∞. A part is closed only with a proved bound (1-3, each
inequality holding for all y of the part) or by running every string on which that bound does not
suffice (5). A split covers: each path passes a step of x inside exactly one option, so each y of
the part is in one of the halves (`tl_dyck.certify.lattice`), and both inherit its bound. So at any
time, `lower` = min(closed, bounds of open parts) ≤ m ≤ `upper` = least value seen, also when time
runs out in the middle. "proved" is said only if lower > 0, "refuted" only if a string of the
space was run and lost.

**Completeness.** A split leaves both halves with fewer live options, parts with a single path are
run, and S(x) is finite: the search ends for any tolerance. It ends early as bounds tighten: as a
part shrinks to a string, the ranges shrink to points, where 2 and 3 are equalities. So without a
time limit the verdict is that of enumeration, unless |m| is below rounding: then "open", and so
are ties.

**Complexity.** n tokens, budgets b_i, s options per place (synonyms), at most c states per place (1
without positions or depths; the number of lengths a prefix can take with positions, of depths with
depths): B = Π (b_i + 1) codes; the graph has O(n B c) nodes, O(n B c i) arcs for i kinds of edit,
O(n s c) emissions. A column costs O(n c (s + B i)) additions: linear in the length, in the synonyms
and in Π (b_i + 1), while the space grows like (n s)^Σb. A verdict of the linear case takes 4-9
columns per logit and group. Else a part takes O((d_mlp + d_model + K 2^min(H, 4)) d_head)
arithmetic per symbol and as many columns; beyond four heads those whose Z varies least pay a
penalty instead of a pattern. The number of parts is exponential in the worst case (the problem is a
sum-of-ratios programme) and 1 to 9 on the sentences of `benchmarks/bench_certify.py`. Memory:
(nodes + bundles + emissions) × columns, columns being cut into pieces so that the largest array has
at most 4·10⁶ numbers (32 MB).

**Rounding** (`balls`). All of the above holds for numbers as they are computed: every quantity is a
ball (value, proved radius; Higham's γ_n, 4 ulp for exp, erf, tanh), every bound is moved outwards
by what its own evaluation can have lost, and costs of symbols are lowered so that a computed path
cost ≥ 0 proves the exact one ≥ 0 (`AttentionWeights.columns`). Where scores are so far apart that
weights underflow, strings without any weight left are not bounded but split off and run
(`Region.sound`, `Region.even`); elsewhere what underflows is some 10⁻⁵⁰ of that slack. What a
string's value can be off by is in `upper`.
"""
