"""Proofs that someone changed: refused in a line, or what they say is true, by enumeration.

    python -m tests.certify.proofs.changed --cases 1000

Half of the changes are of bytes, so that the digest is another; of the rest the digest is made to
fit. A statement may be true after a change: of another tree that proves it, of fewer edits, of a
weight that matters less than the margin. Beside the saved model no other weight is accepted.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.certify.oracles import favouring, margins, random_rnn, strings_of
from tests.certify.proofs.common import enumerated
from tl_dyck.certify import PerturbationSpace, Substitute, Transformation, check_bounds, check_model
from tl_dyck.certify.automaton_proofs import _prove, _prove_places
from tl_dyck.certify.check_language import LEAF, read
from tl_dyck.certify.check_model import symbols
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import pack
from tl_dyck.certify.questions import Asker
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.rnn import RNNConfig, TwoLayerRNN, export_rnn, save_rnn
from tl_dyck.tasks import DyckTask, addition_task
from tl_dyck.tasks.places import PlacePrefixes, prefixes_at
from tl_dyck_papers.by_hand import adder

Facts = dict[str, Any]
Arrays = dict[str, Any]


class Kind(NamedTuple):
    """Proofs of a kind: a small one and its saved model; a change; whether a file says the truth.

    A change is made in place; what is returned is what it was of.
    """

    make: Callable[[Path], tuple[Path, Path]]
    change: Callable[[Facts, Arrays, np.random.Generator], str]
    true: Callable[[Facts, Arrays], bool]


def bytes_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """A byte is another, left out or put in, or the rest is cut off."""
    at, kind = int(rng.integers(len(data))), rng.integers(4)
    other = bytes([data[at] ^ int(rng.integers(1, 256))])
    return (
        data[:at] + other + data[at + 1 :],
        data[:at],
        data[:at] + data[at + 1 :],
        data[:at] + other + data[at:],
    )[kind]


def change_arrays(arrays: Arrays, rng: np.random.Generator, nodes: list[int]) -> str:
    """A node is another, two pieces of the trees change places, or a weight changes."""
    kind = rng.integers(3)
    name = "trees" if kind < 2 else str(rng.choice(sorted(set(arrays) - {"trees"})))
    array = arrays[name] = arrays[name].astype(arrays[name].dtype if kind < 2 else "<f8")
    if kind == 0:
        array[rng.integers(len(array))] = rng.choice(nodes)
        return "a node"
    if kind == 1:
        at = np.sort(rng.integers(len(array) + 1, size=3))
        arrays[name] = np.concatenate([np.split(array, at)[k] for k in (0, 2, 1, 3)])
        return "two pieces of the trees exchanged"
    if not array.size:
        arrays[name] = np.zeros(3)
        return "a shape"
    at = rng.integers(array.size)
    if rng.random() < 0.5:
        array.flat[at] += 1e-6 * (abs(array.flat[at]) or 1)
        return "a weight by a millionth"
    array.flat[at] += rng.choice([-1.0, 1e-3, 1.0, np.nan, 1e300])
    return "a weight by more"


# --- a language: right up to 8, wrong at 9 -------------------------------------------------------


def make_language(folder: Path) -> tuple[Path, Path]:
    """A proof that is checked in a moment, and its model: right up to 8, wrong at 9."""
    task = DyckTask(name="d", n_types=1, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))
    options = {"dtype": torch.float64, "d_mlp": 4, "initializer_range": 0.7}
    model = build_model(get_config("minimal-split", task, **options), 21)
    least = [enumerated(export_rnn(model), task.language, "any_token", n) for n in (8, 9)]
    assert least[1] < least[0] - 1e-3
    with torch.no_grad():
        model.unembed.b_U[1] -= sum(least) / 2
    save_model(model, folder / "model")
    return prove_language(model, task, 8).save(folder / "a.proof"), folder / "model"


def change_language(facts: Facts, arrays: Arrays, rng: np.random.Generator) -> str:
    """Of the trees, a weight, the length, a size, or a shape."""
    kind = rng.integers(6)
    if kind < 3:
        return change_arrays(arrays, rng, [*range(LEAF + 8)])
    if kind == 3:
        facts["length"] = int(rng.choice([9, 10, 12, 100, 10_000, 2**40]))
        return "the length"
    if kind == 4:
        name = str(rng.choice(["n_types", "max_depth", "attn_scale", "floor"]))
        facts[name] = int(rng.choice([0, -1, 3, 63, 10**6, 10**30]))
        return "a size, or a constant"
    name = str(rng.choice(sorted(set(arrays) - {"trees"})))
    arrays[name] = np.zeros(tuple(rng.integers(0, 3, size=int(rng.integers(0, 5)))))
    return "a shape"


def language_true(facts: Facts, arrays: Arrays) -> bool:
    """Whether the claim holds on every prefix, run one by one through the model of the file."""
    k, depth = facts["n_types"], facts["max_depth"]
    tables = {name: torch.tensor(a, dtype=torch.float64) for name, a in arrays.items()}
    tokens, depths = np.transpose(symbols(k, depth))
    embedded = torch.zeros((2 * k + 1, depth + 1, arrays["W_E"].shape[1]), dtype=torch.float64)
    embedded[tokens, depths] = tables["W_E"]
    weights = {"W_E": embedded}
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        weights[name] = tables[name][None]  # of the only head
    for name in ("b_O", "W_in", "b_in", "W_out", "b_out", "W_U", "b_U"):
        weights[name] = tables[name]
    floor = (facts["floor"] or 1e-300) if facts["norm"] else None  # 0 is no floor at all
    before = facts["added"] == "before"
    config = RNNConfig(
        d_model=embedded.shape[2],
        n_heads=1,
        d_head=arrays["W_Q"].shape[1],
        d_vocab=2 * k + 1,
        d_vocab_out=len(arrays["b_U"]),
        n_ctx=64,
        state="depth",
        d_mlp=len(arrays["b_in"]),
        act_fn="relu",
        ln_c=None if before else floor,
        ln_mid=floor if before else None,
        residual=facts["added"] != "never",
        attn_scale=facts["attn_scale"],
        n_types=k,
        max_depth=depth,
        bos_token=2 * k,
    )
    rnn = TwoLayerRNN(config, weights)
    return enumerated(rnn, DyckLanguage(k, depth), facts["claim"], facts["length"]) > 0


# --- paths: a margin of 0.01 ---------------------------------------------------------------------


def reader() -> TwoLayerRNN:
    """Two heads, positions, an MLP with ReLU behind a norm."""
    return random_rnn(2, act_fn="relu", n_heads=2, bos_token=6, state="position", ln2="ln")


def of_rays() -> TwoLayerRNN:
    """One head before LN_C, depths, an MLP with ReLU."""
    return random_rnn(5, act_fn="relu", ln_c=0.3, bos_token=6, state="depth")


def model_in(facts: Facts, arrays: Arrays, rnn: TwoLayerRNN) -> TwoLayerRNN:
    """The model that a file holds; what it leaves out is that of the model it was made of."""
    weights = {n: torch.tensor(a, dtype=torch.float64) for n, a in arrays.items() if n != "trees"}
    embedded = torch.zeros((rnn.config.d_vocab, *weights["W_E"].shape[1:]), dtype=torch.float64)
    embedded[facts["tokens"]], weights["W_E"] = weights["W_E"], embedded
    fields = {**rnn.config.to_dict(), **facts["config"], "separator": None}
    return TwoLayerRNN(RNNConfig(**fields), weights)


def change_config(facts: Facts, rng: np.random.Generator) -> str:
    """A field of the network's configuration."""
    name = str(rng.choice(sorted(facts["config"])))
    facts["config"][name] = (None, -1, 0, 2, "depth", "gelu", [], 10**30)[rng.integers(8)]
    return "the configuration"


PATH_NODES = [0, 1, 2, 5, 9, 2**15, check_bounds.BOUND, check_bounds.RAYS, check_bounds.LIST]
SPACE = PerturbationSpace([(Substitute({0: (1, 2), 3: (4,)}), 2)])
STRING = (0, 3, 0, 5, 1)


def make_edits(folder: Path, rnn: TwoLayerRNN | None = None) -> tuple[Path, Path]:
    """A proof of a few parts, and its exported RNN."""
    rnn = rnn or reader()
    rnn = favouring(rnn, 1, 0.01 - margins(rnn, strings_of(rnn, SPACE, STRING), 1).min())
    save_rnn(rnn, folder / "rnn")
    return prove_edits(rnn, STRING, 1, SPACE).save(folder / "a.proof"), folder / "rnn"


def change_edits(facts: Facts, arrays: Arrays, rng: np.random.Generator) -> str:
    """Of the trees, a weight, a word, a budget, a rewriting, the network."""
    kind = rng.integers(7)
    if kind < 3:
        return change_arrays(arrays, rng, PATH_NODES)
    if kind == 3:
        facts["string"][rng.integers(5)] = int(rng.choice([0, 1, 2, 6, 7, -1, 2**40]))
        return "a word"
    if kind == 4:
        facts["budgets"][0] = int(rng.choice([0, 1, 3, 4, -1, 2**40]))
        return "the number of edits"
    if kind == 5:
        facts["rewrites"][rng.integers(len(facts["rewrites"]))] = [
            int(rng.integers(-1, 2)),
            int(rng.integers(-1, 7)),
            int(rng.integers(0, 3)),
            rng.integers(-1, 8, size=int(rng.integers(0, 3))).tolist(),
        ]
        return "a rewriting"
    return change_config(facts, rng)


class Listed(Transformation):
    """What a file lists: of a kind, from a place, so many tokens, what they become."""

    name = "listed"

    def __init__(self, rows: list[list[Any]]) -> None:
        self.rows = rows

    def rewrites(self, tokens: tuple[int, ...], position: int) -> list[tuple[int, tuple[int, ...]]]:
        return [(span, tuple(emits)) for _, at, span, emits in self.rows if at == position]


def edits_true(facts: Facts, arrays: Arrays, rnn: TwoLayerRNN | None = None) -> bool:
    """Whether the target wins on every string that the file's rewritings make."""
    model = model_in(facts, arrays, rnn or reader())
    space = PerturbationSpace([(Listed(facts["rewrites"]), facts["budgets"][0])])
    every = strings_of(model, space, tuple(facts["string"]))
    return bool(margins(model, every, facts["target"]).min() > 0)


def make_rays(folder: Path) -> tuple[Path, Path]:
    """A proof with leaves of rays and others, and its exported RNN."""
    path, model = make_edits(folder, of_rays())
    nodes = {*read(path)[1]["trees"].tolist()}
    assert {check_bounds.BOUND, check_bounds.RAYS} <= nodes
    return path, model


def rays_true(facts: Facts, arrays: Arrays) -> bool:
    """As `edits_true`."""
    return edits_true(facts, arrays, of_rays())


def of_many() -> TwoLayerRNN:
    """Nine heads, positions, an MLP with GELU in its form with tanh."""
    return random_rnn(2, act_fn="gelu_new", n_heads=9, bos_token=6, state="position", ln2="ln")


def make_lists(folder: Path) -> tuple[Path, Path]:
    """A proof of leaves that list strings alone, and its exported RNN."""
    return make_edits(folder, of_many())


def lists_true(facts: Facts, arrays: Arrays) -> bool:
    """As `edits_true`."""
    return edits_true(facts, arrays, of_many())


def of_gates() -> TwoLayerRNN:
    """Two heads with norms of queries and keys, positions added and turned, an MLP with gates."""
    beyond = {"qk_norm": True, "positions": "standard+rotary", "gated": True}
    return random_rnn(
        2, act_fn="silu", n_heads=2, bos_token=6, state="position", ln2="ln", **beyond
    )


def make_gates(folder: Path) -> tuple[Path, Path]:
    """A proof of such a network, and its exported RNN."""
    return make_edits(folder, of_gates())


def gates_true(facts: Facts, arrays: Arrays) -> bool:
    """As `edits_true`."""
    return edits_true(facts, arrays, of_gates())


#: Token 0 leads back and forth, token 1 from anywhere to the end, which only token 2 leaves.
AFTER = np.array([[1, 2, 0], [0, 2, -1], [-1, -1, 1]])
ODD = Answers(AFTER, np.array([NOTHING, 0, 0]))


def walked(after: Any, tokens: tuple[int, ...]) -> int:
    """The state behind some tokens, step by step; -1 if the automaton does not write them."""
    state = 0
    for token in tokens:
        state = after[state][token] if state >= 0 else -1
    return state


def every(after: Any, asked: Any, lengths: Iterable[int]) -> list[tuple[tuple[int, ...], int]]:
    """All strings of some lengths of which something is asked, and what."""
    found = []
    for length in lengths:
        for tokens in itertools.product(range(len(after[0])), repeat=length):
            state = walked(after, tokens)
            if state >= 0 and asked[state] not in (None, NOTHING):
                found.append((tokens, int(asked[state])))
    return found


def make_automaton(folder: Path) -> tuple[Path, Path]:
    """A proof of several parts, and its exported RNN."""
    rnn = reader()
    strings = [tokens for tokens, _ in every(ODD.after, ODD.answer, range(4))]
    rnn = favouring(rnn, 0, 0.01 - margins(rnn, strings, 0).min())
    save_rnn(rnn, folder / "rnn")
    proof = _prove(Asker(rnn), ODD, "an automaton", 3, None)
    return proof.save(folder / "a.proof"), folder / "rnn"


def change_automaton(facts: Facts, arrays: Arrays, rng: np.random.Generator) -> str:
    """Of the trees, a weight, the automaton, an answer, a length, a token, the network."""
    kind = rng.integers(6)
    if kind < 3:
        return change_arrays(arrays, rng, PATH_NODES)
    if kind == 3:
        row = facts["after"][rng.integers(3)]
        row[rng.integers(3)] = (-2, -1, 0, 1, 2, 3, 0.5, None)[rng.integers(8)]
        return "where a token leads"
    if kind == 4:
        at, value = rng.integers(3), (None, -1, 0, 1, 2, 9, "0")[rng.integers(7)]
        facts[("answers", "lengths", "written")[at]][rng.integers(3)] = value
        return "an answer, a length or a token"
    return change_config(facts, rng)


def automaton_true(facts: Facts, arrays: Arrays) -> bool:
    """Whether the answer wins on every string that the file's automaton writes."""
    model, asked = model_in(facts, arrays, reader()), {}
    lengths = {*facts["lengths"]} - ({0} if model.config.bos_token is None else set())
    for columns, answer in every(facts["after"], facts["answers"], lengths):
        asked.setdefault(answer, []).append(tuple(facts["written"][i] for i in columns))
    return all(margins(model, strings, answer).min() > 0 for answer, strings in asked.items())


def make_adder(folder: Path) -> tuple[Path, Path]:
    """A proof that a model adds two digits to base 3, and its exported RNN; a margin of 0.01."""
    task, rnn = addition_task(1, base=3), adder(1, 3)
    gaps = []
    for prefixes in (prefixes_at(task, place) for place in task.asked):
        order = prefixes.order.tolist()
        for tokens, answer in every(prefixes.after, prefixes.answer, [len(order)]):
            logits = rnn(torch.tensor([as_placed(tokens, order)]))[0, -1]
            gaps += [float(logits[answer] - logits[2])] if answer != 2 else []
    rnn = favouring(rnn, 2, min(gaps) - 0.01)
    save_rnn(rnn, folder / "rnn")
    return prove_language(rnn, task).save(folder / "a.proof"), folder / "rnn"


def adder_true(facts: Facts, arrays: Arrays) -> bool:
    """As `places_true`."""
    return places_true(facts, arrays, adder(1, 3))


def make_places(folder: Path) -> tuple[Path, Path]:
    """A proof of two lengths, of which one is read from its middle; and its exported RNN."""
    orders = [0, 1], [1, 0, 2]
    prefixes = [PlacePrefixes(np.array(o), AFTER, AFTER >= 0, ODD.answer) for o in orders]
    strings = [as_placed(x, o) for o in orders for x, _ in every(AFTER, ODD.answer, [len(o)])]
    rnn = reader()
    rnn = favouring(rnn, 0, 0.01 - margins(rnn, strings, 0).min())
    save_rnn(rnn, folder / "rnn")
    proof = _prove_places(Asker(rnn), prefixes, "places", None)
    return proof.save(folder / "a.proof"), folder / "rnn"


def as_placed(tokens: tuple[int, ...], order: list[int]) -> tuple[int, ...]:
    """Tokens in the order in which they are read, as they are written."""
    at = dict(zip(order, tokens, strict=True))
    return tuple(at[place] for place in range(len(tokens)))


def change_places(facts: Facts, arrays: Arrays, rng: np.random.Generator) -> str:
    """Of a part its order or its length; or what `change_automaton` changes, of that part."""
    part = facts["parts"][rng.integers(2)]
    kind = rng.integers(4)
    if kind == 0:
        part["order"][rng.integers(len(part["order"]))] = (-1, 0, 1, 2, 3, True, None)[
            rng.integers(7)
        ]
        return "an order"
    if kind == 1:
        part["order"] = rng.permutation(int(rng.integers(1, 5))).tolist()
        part["lengths"] = [[len(part["order"])], [2], [3], [2, 3]][rng.integers(4)]
        return "an order and a length"
    if kind == 2:
        row = part["after"][rng.integers(len(part["after"]))]
        row[rng.integers(len(row))] = (-2, -1, 0, 1, 2, 3, 0.5, None)[rng.integers(8)]
        return "where a token leads"
    return change_arrays(arrays, rng, PATH_NODES)


def places_true(facts: Facts, arrays: Arrays, rnn: TwoLayerRNN | None = None) -> bool:
    """Whether the answer wins on every string, as it is written, of each part."""
    model, lengths = model_in(facts, arrays, rnn or reader()), []
    for part in facts["parts"]:
        (length,), order = part["lengths"], part["order"]
        lengths.append(length)
        assert sorted(order) == [*range(length)]
        assert order[-1] == length - 1
        for tokens, answer in every(part["after"], part["answers"], [length]):
            if margins(model, [as_placed(tokens, order)], answer).min() <= 0:
                return False
    return len({*lengths}) == len(lengths)


KINDS = {
    "a language": Kind(make_language, change_language, language_true),
    "edits": Kind(make_edits, change_edits, edits_true),
    "edits, rays": Kind(make_rays, change_edits, rays_true),
    "edits, lists": Kind(make_lists, change_edits, lists_true),
    "edits, gates": Kind(make_gates, change_edits, gates_true),
    "an automaton": Kind(make_automaton, change_automaton, automaton_true),
    "places": Kind(make_places, change_places, places_true),
    "an adder": Kind(make_adder, change_places, adder_true),
}


def tally(kind: Kind, cases: int, folder: Path) -> Counter[tuple[str, str]]:
    """How often what was changed, and what came of it. Raises if a file is believed wrongly."""
    path, model = kind.make(folder)
    whole, rng, found = path.read_bytes(), np.random.default_rng(0), Counter()
    assert check_model.verdict(path, model)[0]
    for number in range(cases):
        data = whole
        while data == whole:
            facts, arrays = read(path)
            del facts["arrays"]
            if number % 2:
                data, what = bytes_changed(whole, rng), "a byte"
            else:
                what = kind.change(facts, arrays, rng)
                data = pack(facts, {name: np.ascontiguousarray(a) for name, a in arrays.items()})
        (folder / "changed").write_bytes(data)
        proved, said = check_model.verdict(folder / "changed")
        beside, how = check_model.verdict(folder / "changed", model)
        assert len(said.splitlines()) == len(how.splitlines()) == 1
        assert max(len(said), len(how)) < 400
        assert beside <= proved
        assert not proved or (not number % 2 and kind.true(facts, arrays)), said
        came = "accepted: true of that model" if beside else "accepted: true of the weights in it"
        found[what, came if proved else "refused"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, kind in KINDS.items():
        started = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = tally(kind, arguments.cases, Path(folder))
        totals = Counter()
        for (_, outcome), times in found.items():
            totals[outcome] += times
        said = ", ".join(f"{times} {outcome}" for outcome, times in sorted(totals.items()))
        print(f"{name}: {said}; {time.process_time() - started:.0f} s of CPU time")
        for (what, outcome), times in sorted(found.items()):
            print(f"  {times:5}  {what}: {outcome}")


if __name__ == "__main__":
    main()
