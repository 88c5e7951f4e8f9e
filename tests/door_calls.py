"""Public calls on a world, each held to what its oracle says."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.certify.proofs.common import unpacked
from tests.doors import LONGEST, UNNAMED, Oracle, given, oracle, twin, vocabulary
from tl_dyck import ablation, adopt, head_truths, load_model, probes, save_model
from tl_dyck.certify import certify, certify_dyck, certify_each, certify_many
from tl_dyck.certify.check_model import check
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.language import certify_language, sample_error
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.rnn import export_rnn
from tl_dyck.tasks import DyckTask, counted_accuracy, nats_over_law
from tl_dyck.tasks.closing_accuracy import closing_strings

CLOSE = {"rtol": 1e-6, "atol": 1e-8}
CALLS: dict[str, Callable[[Oracle, Any], None]] = {}
TUNING = ablation.FinetuneConfig(penalties=(0.1,), steps=2, batch_size=4, n_eval=6)
EPSILON = 0.4
THRESHOLD = -0.3  # of some worlds' logits that is on the other side than 0


def same(found: Any, wanted: Any, **how: float) -> None:
    """Assert that numbers are close, NaN where NaN is."""
    both = [torch.as_tensor(each, dtype=torch.float64).detach() for each in (found, wanted)]
    np.testing.assert_allclose(*both, **{**CLOSE, **how})


def call(function: Callable[[Oracle, Any], None]) -> Callable[[Oracle, Any], None]:
    """A row of `CALLS`, under the function's name."""
    CALLS[function.__name__] = function
    return function


def some_strings(o: Oracle, n: int) -> list[tuple[int, ...]]:
    """Some strings of n symbols that the task may write."""
    return [string for string, _ in o.grown(n)][:6]


def ours(o: Oracle, strings: Sequence[Sequence[int]]) -> torch.Tensor:
    """Strings of symbols in our tokens, BOS first if it is adopted or has one."""
    bare = o.world.bos is None and o.world.kind in UNNAMED
    first = [] if bare else [o.task.language.bos_token]
    return torch.tensor([[*first, *string] for string in strings])


# --- reading --------------------------------------------------------------------------------------


@call
def adopting(o: Oracle, model: Any) -> None:
    """The logits of symbols are those that the user's model gives them."""
    mine = adopt(o.model, vocabulary(o.world), outputs=o.world.told)
    strings = some_strings(o, 2)
    found = mine(torch.tensor([[o.task.language.bos_token, *string] for string in strings]))
    same(found[:, -1].sort(-1).values, np.sort(o.last(strings)))
    if o.world.kind != "classes":
        same(found[:, -1, : o.world.n], o.last(strings)[:, o.columns])


@call
def saving(o: Oracle, model: Any) -> None:
    """It comes back, and still knows what its logits are of."""
    with tempfile.TemporaryDirectory() as folder:
        again = load_model(save_model(model, Path(folder) / "model"), device="cpu")
    counted(o, again)


@call
def counted(o: Oracle, model: Any) -> None:
    """Closing accuracy of brackets, and of others that of what counts."""
    found = counted_accuracy(o.task, model, n=12, seed=3, device="cpu")
    generator = torch.Generator().manual_seed(3)
    if isinstance(o.task, DyckTask):
        how = {"n": 12, "generator": generator}
        tokens, weights = closing_strings(*o.task.closing_distribution(), **how)
    else:
        tokens = o.task.sample(12, generator=generator)
        weights = o.task.counted_positions(tokens).double()
    right = total = 0.0
    for row, weight in zip(tokens.tolist(), weights.tolist(), strict=True):
        for at in np.flatnonzero(weight).tolist():
            if at == 1 and o.world.bos is None:
                continue  # who has read nothing is not asked
            best = o.last([row[1:at]])[0].argmax()
            right += weight[at] * (best == o.columns[row[at]])
            total += weight[at]
    same(found.any_token, right / total)


@call
def law(o: Oracle, model: Any) -> None:
    """Nats over the law, a string at a time."""
    found, _ = nats_over_law(o.task, model, n=6, seed=3, device="cpu")
    tokens = o.task.sample(6, generator=torch.Generator().manual_seed(3))
    probs, bos = o.task.next_token_probs(tokens), o.task.language.bos_token
    lost = length = 0.0
    for row, each in zip(tokens.tolist(), probs, strict=True):
        string = [x for x in row if x != bos]
        first = int(o.world.bos is None)
        for at in range(first, len(string)):
            p = each[at, : o.world.n].numpy()
            q = torch.tensor(o.last([string[:at]])[0]).log_softmax(-1)[o.columns].numpy()
            lost += sum(a * (math.log(a) - b) for a, b in zip(p, q, strict=True) if a > 0)
        length += len(string) - first
    same(found, lost / length)


# --- attention and importance ---------------------------------------------------------------------


def probe(o: Oracle, model: Any, name: str) -> None:
    """Of the registry, with nothing but the model: what takes many gets two."""
    function, text = probes.load_probe(name), o.task.language.probe_string[:8]
    if name == "attention_variation":
        other = oracle(o.world, seed=5)
        found = function([model, given(o.world, seed=5)], text)
        tokens = o.tokens([o.task.language.tokenize(text).tolist()])
        moved = o.patterns(tokens) - other.patterns(tokens)
        same(found.mean, moved.square().sum((-1, -2))[:, 0])
    elif name == "stack_likeness":
        found = function(model, o.task, n=5, seed=2)
        on_top: list[torch.Tensor] = []
        for row in o.task.sample(5, generator=torch.Generator().manual_seed(2)).tolist():
            string = [x for x in row[1:] if x != o.task.language.bos_token]
            pattern, stack = o.patterns(o.tokens([string]))[:, 0], []
            for at, x in enumerate(string, start=int(o.world.bos is not None)):
                stack = stack[:-1] if x % 2 else [*stack, at]
                on_top += [pattern[:, :, at, stack[-1]]] if stack else []
        same(found.mass, torch.stack(on_top).mean(0))
    elif name == "attention_entropy":
        found = function(model, o.task, n=5, seed=2)
        nats: list[torch.Tensor] = []
        for row in o.task.sample(5, generator=torch.Generator().manual_seed(2)).tolist():
            string = [x for x in row[1:] if x != o.task.language.bos_token]
            entropy = torch.special.entr(o.patterns(o.tokens([string]))[:, 0]).sum(-1)
            nats += entropy[..., o.world.bos is not None :].unbind(-1)  # BOS is no query
        same(found, torch.stack(nats).mean(0))
    elif name == "balance_violation":
        how = {"first_layer": "means", "head": 0, "n": 40}
        found = function(model, o.task, **how)
        same(found.beta, function(twin(o.world), o.task, **how).beta)
    else:
        function(model)
        raise AssertionError(
            f"{name} answers, and nothing answers it a second time: "
            "add an oracle for this probe in tests/door_calls.py"
        )


def hook_z(layer: int, head: int, value: torch.Tensor) -> tuple[str, Any]:
    """Put something in place of a head's output."""

    def put(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z[:, :, head] = value
        return z

    return f"blocks.{layer}.attn.hook_z", put


def uniform(layer: int, head: int) -> tuple[str, Any]:
    """Have a head attend to all that it may."""

    def put(pattern: torch.Tensor, hook: Any) -> torch.Tensor:
        even = torch.ones_like(pattern[:, head]).tril()
        pattern[:, head] = even / even.sum(-1, keepdim=True)
        return pattern

    return f"blocks.{layer}.attn.hook_pattern", put


def importance(o: Oracle, model: Any, mode: str) -> None:
    """Of log-likelihood; by hooks on the user's model, "resample" by a model with our ids."""
    strings = some_strings(o, 3)
    measure = partial(ablation.frozen_importance, mode=mode)
    if mode == "gradient":
        measure = ablation.gradient_importance
    found = measure(model, ours(o, strings)).values
    tokens = o.tokens(strings)
    if mode == "resample":
        same(found, measure(twin(o.world), ours(o, strings)).values)
        return
    before = o.log_probs(o.model(tokens).detach(), strings)
    wanted = np.zeros((o.world.layers, o.world.heads))
    _, cache = o.model.run_with_cache(tokens)
    for layer, head in np.ndindex(*wanted.shape):
        z = cache[f"blocks.{layer}.attn.hook_z"][:, :, head]
        if mode == "gradient":
            xi = torch.ones(len(strings), requires_grad=True, dtype=torch.float64)
            with torch.enable_grad():
                hook = hook_z(layer, head, z * xi[:, None, None])
                after = o.log_probs(o.model.run_with_hooks(tokens, fwd_hooks=[hook]), strings)
                (slope,) = torch.autograd.grad(after.sum(), [xi])
            wanted[layer, head] = slope.abs().mean()
            continue
        real = z[:, int(o.world.bos is not None) :]
        put = torch.zeros(3) if mode == "zero" else real.mean((0, 1))
        hook = uniform(layer, head) if mode == "uniform-pattern" else hook_z(layer, head, put)
        after = o.log_probs(o.model.run_with_hooks(tokens, fwd_hooks=[hook]).detach(), strings)
        wanted[layer, head] = (before - after).mean()
    same(found, wanted)


@call
def fine_tuned(o: Oracle, model: Any) -> None:
    """By the same model with our ids."""
    how: dict[str, Any] = {"options": TUNING, "progress": False}
    found = ablation.finetuned_importance(model, o.task, **how)
    wanted = ablation.finetuned_importance(twin(o.world), o.task, **how)
    same(found.path["metric"], wanted.path["metric"])
    same(found.values, wanted.values)


@call
def leave_one_out(o: Oracle, model: Any) -> None:
    """By the same model with our ids."""
    how: dict[str, Any] = {"options": TUNING, "progress": False}
    found = ablation.leave_one_out_importance(model, o.task, **how)
    same(found.values, ablation.leave_one_out_importance(twin(o.world), o.task, **how).values)


@call
def heads(o: Oracle, model: Any) -> None:
    """The table of all heads: zero, and entropy, by hand on the strings that it draws."""
    table, _ = ablation.measure_heads(model, o.task, modes=("zero",), n=4, progress=False)
    source = ablation.tuning.Source(model, o.task, None, ablation.FinetuneConfig(n_eval=4), 0)
    bos = o.task.language.bos_token
    rows = [[x for x in row if x != bos] for row in source.tokens.tolist()]
    zero = np.zeros((o.world.layers, o.world.heads))
    entropy, n = torch.zeros(o.world.layers, o.world.heads, dtype=torch.float64), 0
    for string in rows:
        tokens = o.tokens([string])
        real = o.patterns(tokens)[:, 0, :, int(o.world.bos is not None) :]  # BOS is no query
        entropy += torch.special.entr(real).sum((-1, -2))
        n += len(string)
        before = o.log_probs(o.model(tokens).detach(), [string])
        for layer, head in np.ndindex(*zero.shape):
            hook = hook_z(layer, head, torch.zeros(3))
            after = o.log_probs(o.model.run_with_hooks(tokens, fwd_hooks=[hook]).detach(), [string])
            zero[layer, head] += float((before - after)[0]) / len(rows)
    same(table["zero"], zero.ravel())
    same(table["entropy"], (entropy / n).flatten())


@call
def truths(o: Oracle, model: Any, claim: str = "any_token") -> None:
    """Of each head: how many closing brackets, or sets of what may follow, break without it."""
    how: dict[str, Any] = {"threshold": THRESHOLD} if claim == "allowed" else {}
    found = head_truths(model, o.task, 3, claim, **how)
    has_stack = isinstance(o.task, DyckTask)

    def chance(string: Any) -> float:
        """Of brackets; of other automata every string counts alike."""
        return o.chance(string) if has_stack else 1.0

    # of no model without BOS the empty one, which no closing bracket follows either
    lengths = range((has_stack and claim == "any_token") or o.world.bos is None, 4)
    right: list[np.ndarray] = []
    for layer, head in [(None, None), *np.ndindex(o.world.layers, o.world.heads)]:
        hooks = [] if layer is None else [hook_z(layer, head, torch.zeros(3))]
        share = []
        for length in lengths:
            for string, state in o.grown(length):
                if claim == "allowed" and o.follows(state):
                    may = np.isin(range(o.world.n), o.follows(state))
                    said = o.last([string], hooks=hooks)[0][o.columns] > THRESHOLD
                    share.append(np.array_equal(said, may) * chance(string))
                elif claim != "allowed" and o.asked(state) is not None:
                    margin = o.margins([string], [[o.asked(state)]], hooks=hooks)[0]
                    share.append((margin > 0) * chance(string))
        right.append(np.array(share))
    weight = [
        chance(s) for n in lengths for s, at in o.grown(n)
        if (o.follows(at) if claim == "allowed" else o.asked(at) is not None)
    ]  # fmt: skip
    same(found.accuracy, right[0].sum() / sum(weight))
    needed = [((right[0] > 0) & (each == 0)) @ weight / sum(weight) for each in right[1:]]
    same(found.table["needed"], needed)
    if has_stack:
        assert found.reads_top(0, 0).verdict in ("yes", "no", "mixed")


# --- RNN and edits --------------------------------------------------------------------------------


@call
def exporting(o: Oracle, model: Any) -> None:
    """The RNN gives symbols the user's logits."""
    rnn, strings = export_rnn(model), some_strings(o, 3)
    raw, wanted = o.world.kind in UNNAMED, o.last(strings)
    read = ours(o, strings)[:, int(o.world.bos is None) :]
    found = rnn(o.tokens(strings) if raw else read)[:, -1].detach()
    if raw or o.world.kind == "classes":
        same(found, wanted)
    else:
        same(found[:, : o.world.n], wanted[:, o.columns])
        same(found.sort(-1).values, np.sort(wanted))


@call
def rnn_language(o: Oracle, model: Any) -> None:
    """What is said of the RNN is said of the model; it still knows what its logits are of."""
    language(o, export_rnn(model), "any_token")


@call
def rnn_dyck(o: Oracle, model: Any) -> None:
    """Likewise."""
    pairs_inserted(o, export_rnn(model))


def swapped(string: tuple[int, ...]) -> set[tuple[int, ...]]:
    """With at most one exchange of neighbours."""
    found = {string}
    for i in range(len(string) - 1):
        found.add((*string[:i], string[i + 1], string[i], *string[i + 2 :]))
    return found


def read_by(o: Oracle, string: tuple[int, ...]) -> tuple[int, ...]:
    """A string as the model that is given reads it, without BOS; of raw ones, BOS is a symbol."""
    return tuple(o.tokens([string])[0].tolist()) if o.world.kind in UNNAMED else string


def kept(o: Oracle, string: tuple[int, ...]) -> float:
    """The least margin of what the model predicts on a string, as it reads it, with one swap."""
    strings = sorted(swapped(string), key=lambda each: each != string)
    raw = o.world.kind in UNNAMED
    after = o.model(torch.tensor(strings))[:, -1].detach().numpy() if raw else o.last(strings)
    target = int(after[0].argmax())
    return float((after[:, target] - np.delete(after, target, 1).max(1)).min())


def edits(o: Oracle, model: Any, name: str) -> None:
    """`certify`, `certify_many` or `certify_each`, of swaps."""
    strings = [read_by(o, string) for string in some_strings(o, 3)[:2]]
    how: dict[str, Any] = {"tight": True}
    if name == "certify":
        found = [certify(model, string, None, "swap:1", **how) for string in strings]
    else:
        several = {"certify_many": certify_many, "certify_each": certify_each}[name]
        found = [*several(model, strings, None, "swap:1", **how)]
    for string, each in zip(strings, found, strict=True):
        assert each.status == ("refuted" if kept(o, string) < 0 else "proved")
        same(each.upper, kept(o, string), atol=1e-7)


@call
def edit_proof(o: Oracle, model: Any) -> None:
    """A proof, only if it is so."""
    string = read_by(o, some_strings(o, 3)[0])
    found = prove_edits(model, string, None, "swap:1")
    assert check(*unpacked(found.content))
    assert kept(o, string) > 0


@call
def pairs_inserted(o: Oracle, model: Any) -> None:
    """`certify_dyck`: one block of nested pairs before the last bracket."""
    string = next(s for s, state in o.grown(3) if state)
    (row,) = certify_dyck(model, o.task, prefixes=[string], budget=1).rows
    some, stack, state = {string}, [0], ()
    for x in string:
        state = dict(o._moves(state))[x]
        stack.append(len(state))
    for gap in range(len(string)):
        for kind in range(o.task.n_types):
            for m in range(1, o.task.max_depth - stack[gap] + 1):
                block = (2 * kind,) * m + (2 * kind + 1,) * m
                some.add((*string[:gap], *block, *string[gap:]))
    right = [o.asked(state)]
    margin = min(o.margins([each], [right])[0] for each in some)
    assert row.certificate.status == ("refuted" if margin < 0 else "proved")


# --- whole languages ------------------------------------------------------------------------------


def wrong(o: Oracle, claim: str, length: int, other: Oracle | None) -> dict[Any, bool]:
    """Of each string of a length of which a claim says something: whether it is wrong there."""
    grown = o.grown(length) if length or o.world.bos is not None else []
    if not grown:
        return {}
    strings, found = [string for string, _ in grown], {}
    every = theirs = o.last(strings)
    if claim == "head":
        theirs = o.last(strings, hooks=[uniform(o.world.layers - 1, 0)])
    elif claim == "agree":
        assert other is not None
        theirs = other.last(strings)
    for (string, state), logits, their in zip(grown, every, theirs, strict=True):
        right = o.asked(state)
        if claim in ("any_token", "closing_only"):
            if right is None:
                continue
            rivals = range(1, o.world.n, 2) if claim == "closing_only" else None
            if rivals is not None and len(rivals) == 1:
                continue  # there is nobody to lose
            found[string] = o.margin(logits, [right], rivals) < 0
        elif claim == "allowed":
            may = np.isin(range(o.world.n), o.follows(state))
            if may.any():
                found[string] = not np.array_equal(logits[o.columns] > THRESHOLD, may)
        elif claim == "valid_token":
            found[string] = o.margin(logits, o.follows(state)) < 0
        elif claim in ("kl", "total_variation"):
            log_q = torch.tensor(logits).log_softmax(-1).numpy()
            law = np.zeros(len(logits))
            for x, p in o.law(state).items():
                law[o.columns[x]] = p
            distance = abs(law - np.exp(log_q)).sum() / 2
            if claim == "kl":
                distance = sum(p * (np.log(p) - q) for p, q in zip(law, log_q, strict=True) if p)
            found[string] = bool(distance > EPSILON)
        else:
            found[string] = bool(their.argmax() != logits.argmax())
    return found


def about(o: Oracle, claim: str) -> tuple[dict[str, Any], Oracle | None]:
    """What a claim takes besides, and the oracle of the other model."""
    if claim in ("kl", "total_variation"):
        return {"epsilon": EPSILON}, None
    if claim == "allowed":
        return {"threshold": THRESHOLD}, None
    if claim == "head":
        return {"head": (o.world.layers - 1, 0)}, None
    if claim == "agree":
        return {"other": given(o.world, seed=5)}, oracle(o.world, seed=5)
    return {}, None


def language(o: Oracle, model: Any, claim: str) -> None:
    """How many strings of each length are wrong."""
    how, other = about(o, claim)
    found = certify_language(model, o.task, LONGEST, claim, **how)
    rows = {row.length: row for row in found.by_length}
    bad = {n: wrong(o, claim, n, other) for n in range(LONGEST + 1)}
    assert {n for n, each in bad.items() if each} == set(rows)
    for length, row in rows.items():
        assert row.decided
        assert (row.prefixes, row.wrong) == (len(bad[length]), sum(bad[length].values()))
    first = min((n for n, each in bad.items() if any(each.values())), default=LONGEST + 1)
    assert found.proved_to == first - 1
    assert found.status == ("proved" if first > LONGEST else "refuted")


def sampled(o: Oracle, model: Any, claim: str) -> None:
    """An interval that holds the error."""
    how, other = about(o, claim)
    (found,) = sample_error(model, o.task, [3], claim, n=60, **how)
    bad = wrong(o, claim, 3, other)
    brackets = isinstance(o.task, DyckTask)  # of automata each string is as likely
    weight = {string: o.chance(string) if brackets else 1.0 for string in bad}
    if brackets and claim in ("any_token", "closing_only"):  # as often as the next bracket closes
        states = dict(o.grown(3))
        weight = {
            s: w * sum(p for x, p in o.law(states[s]).items() if x % 2) for s, w in weight.items()
        }
    error = sum(w for s, w in weight.items() if bad[s]) / sum(weight.values())
    assert found.error.low <= error + 1e-12
    assert error <= found.error.high + 1e-12


def proof(o: Oracle, model: Any, claim: str) -> None:
    """There is one only of what is so, and the checker takes it."""
    how, other = about(o, claim)
    found = prove_language(model, o.task, LONGEST - 1, claim, **how)
    assert check(*unpacked(found.content))
    for length in range(LONGEST):
        assert not any(wrong(o, claim, length, other).values())


for name in probes.list_probes():
    CALLS[f"probe {name}"] = partial(probe, name=name)
for name in (*ablation.MODES, "gradient"):
    CALLS[f"importance {name}"] = partial(importance, mode=name)
CALLS["truths allowed"] = partial(truths, claim="allowed")
for name in ("certify", "certify_many", "certify_each"):
    CALLS[name] = partial(edits, name=name)
CLAIMS = ("any_token", "closing_only", "valid_token", "allowed")
CLAIMS += ("total_variation", "kl", "agree", "head")
for name in CLAIMS:
    CALLS[f"certify_language {name}"] = partial(language, claim=name)
    CALLS[f"sample_error {name}"] = partial(sampled, claim=name)
for name in ("any_token", "closing_only", "valid_token", "allowed", "agree", "head"):
    CALLS[f"prove_language {name}"] = partial(proof, claim=name)
