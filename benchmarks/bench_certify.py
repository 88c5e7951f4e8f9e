"""The exact certifier on sentences: time, verdicts, model evaluations, beside other certifiers.

Vocabulary 10,000, sentences of 10 to 50 words, up to 8 synonyms a word. By default the words are
made up: each has a polarity, a sentence's label is the sign of its sum, synonyms have a similar
polarity, and the five most frequent words have none (they are what "del" may drop). One-layer
classifiers are trained on them, half of the time with random synonyms in place, so that some
predictions are robust and some are not.

All certifiers answer the same questions one after the other in this process, with one thread; only
ratios carry over to other machines. The floor of a verdict is one pass over the string graph for
each logit, plus two forward passes (the original, and the worst string): "floor" times just that,
on the same graphs.

Run with ``python benchmarks/bench_certify.py``; ``--growth FILE.html`` draws cost against
length, budget, logits and heads.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from harness import clock, heading, in_turns, options, row, save_figure, spread

from tl_dyck.certify import PerturbationSpace, certify_many, parse_space
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import emission_costs, sweep
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import RNNConfig, TwoLayerRNN, weight_shapes
from tl_dyck_text.edits import pad

VOCABULARY = 10_000
SPACES = {
    "dup 2, sub 2, k=1": ("dup:2,sub:2", 1),
    "dup 2, sub 2, k=8": ("dup:2,sub:2", 8),
    "del 2, sub 2, k=8": ("del:2,sub:2", 8),
    "dup 2, del 2, sub 2, k=8": ("dup:2,del:2,sub:2", 8),
}
SMALL = [
    ("sub:1", 1, 10),
    ("sub:1", 8, 10),
    ("dup:1,sub:1", 1, 10),
    ("sub:1", 8, 30),
    ("sub:2", 4, 10),
    ("dup:1,sub:1", 8, 10),
    ("dup:2,sub:2", 1, 10),
    ("sub:2", 8, 10),
]


@dataclass(frozen=True)
class Corpus:
    """Sentences as token ids, and what may be done to them."""

    train: list[list[int]]
    train_labels: list[int]
    test: list[list[int]]
    test_labels: list[int]
    synonyms: dict[int, tuple[int, ...]]
    stop_words: list[int]

    def space(self, text: str, k: int) -> PerturbationSpace:
        table = {word: found[:k] for word, found in self.synonyms.items()}
        return parse_space(text, substitutes=table, deletable=self.stop_words)


def made_up(seed: int = 0) -> Corpus:
    rng = np.random.default_rng(seed)
    polarity = rng.normal(size=VOCABULARY) * (rng.random(VOCABULARY) < 0.3)
    polarity[:5] = 0.0
    near = polarity + 0.3 * rng.normal(size=VOCABULARY)
    order = np.argsort(near)
    rank = np.argsort(order)
    synonyms = {}
    for word in np.flatnonzero(rng.random(VOCABULARY) < 0.6).tolist():
        around = order[max(0, rank[word] - 5) : rank[word] + 6]
        synonyms[word] = tuple(int(other) for other in rng.permutation(around[around != word])[:8])
    frequency = 1 / np.arange(10, VOCABULARY + 10)
    frequency /= frequency.sum()

    def draw(n: int) -> tuple[list[list[int]], list[int]]:
        rows = [
            rng.choice(VOCABULARY, size=size, p=frequency).tolist()
            for size in rng.integers(10, 51, size=n)
        ]
        return rows, [int(polarity[row].sum() > 0) for row in rows]

    return Corpus(*draw(20_000), *draw(1000), synonyms, list(range(5)))


def untrained(
    d: int, heads: int, *, mlp: bool, position: bool, words: int = VOCABULARY, logits: int = 2
) -> TwoLayerRNN:
    """A one-layer model with random weights."""
    config = RNNConfig(
        d_model=d,
        n_heads=heads,
        d_head=d // heads,
        d_vocab=words,
        d_vocab_out=logits,
        n_ctx=64,
        state="position" if position else "none",
        d_mlp=4 * d if mlp else None,
        act_fn="relu" if mlp else None,
        residual=mlp,
        attn_scale=(d // heads) ** 0.5,
    )
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in weight_shapes(config).items():
        fan_in = 1 if name in ("W_E", "W_pos") else shape[-2] if len(shape) > 1 else 0
        weights[name] = torch.randn(shape, generator=generator) * (
            0.1 if name == "W_E" else fan_in**-0.5 * 0.5 if fan_in else 0
        )
    return TwoLayerRNN(config, weights)


def classifier(
    corpus: Corpus, d: int, heads: int, *, mlp: bool, position: bool, steps: int
) -> TwoLayerRNN:
    """Train a one-layer classifier; half of each batch has random synonyms in place."""
    rnn = untrained(d, heads, mlp=mlp, position=position)
    weights = {name: weight.requires_grad_() for name, weight in rnn.weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=2e-3, weight_decay=1e-2)
    rng, labels = np.random.default_rng(0), torch.tensor(corpus.train_labels)
    for _ in range(steps):
        chosen = rng.integers(len(corpus.train), size=64)
        rows = [corpus.train[i] for i in chosen]
        rows[::2] = [_with_synonyms(row, corpus.synonyms, rng) for row in rows[::2]]
        tokens, lengths = pad([row[:50] for row in rows])
        loss = F.cross_entropy(rnn.last_logits(tokens, lengths), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    done = {name: weight.detach().double() for name, weight in weights.items()}
    return TwoLayerRNN(rnn.config, done)


def _with_synonyms(
    row: list[int], synonyms: dict[int, tuple[int, ...]], rng: np.random.Generator
) -> list[int]:
    return [
        int(rng.choice((word, *synonyms[word])))
        if word in synonyms and rng.random() < 0.3
        else word
        for word in row
    ]


def floor(
    rnn: TwoLayerRNN, string: tuple[int, ...], target: int, space: PerturbationSpace
) -> float:
    """Seconds for what every exact verdict needs: a sweep per other logit, and two strings run."""
    network, lattice = Network(rnn), space.lattice(string)
    graph = build_graph(network, lattice)
    groups = np.arange(len(graph.groups))
    costs = np.random.default_rng(0).normal(size=(len(graph.symbols.tokens), len(groups)))
    objectives = Objectives.margins(target, rnn.config.d_vocab_out)
    start = perf_counter()
    sweep(graph, emission_costs(graph, costs, groups))
    network.values_of([string, string], objectives)
    return perf_counter() - start


def verdicts(corpus: Corpus, models: dict[str, TwoLayerRNN], n: int, seconds: float) -> None:
    strings = [tuple(words) for words in corpus.test]
    print(f"\n{n} sentences that are classified right; a limit of {seconds:g} s each; times in ms")
    for name, rnn in models.items():
        tokens, lengths = pad(strings)
        with torch.no_grad():
            right = rnn.last_logits(tokens, lengths).argmax(-1) == torch.tensor(corpus.test_labels)
        chosen = np.flatnonzero(right.numpy())[:n]
        rows, targets = [strings[i] for i in chosen], [corpus.test_labels[i] for i in chosen]
        print(f"\n{name}: accuracy {float(right.float().mean()):.1%}")
        for label, (text, k) in SPACES.items():
            compare(f"{label}:", rnn, rows, targets, corpus.space(text, k), seconds)


def compare(
    label: str, rnn: TwoLayerRNN, rows: list[Any], targets: list[int], space: Any, seconds: float
) -> None:
    """Certifiers beside each other, and beside the floor."""
    sizes = [space.size(string) for string in rows]
    print(f"\n{label} {np.median(sizes):,.0f} strings (median), {max(sizes):,} at most\n")
    certify_many(rnn, rows[:3], targets[:3], space)  # warms up
    heading("certifier", "median", "95 %", "max", "decided", "proved", "evaluations")
    found = {}
    for certifier in ("exact", "interval"):
        done = certify_many(rnn, rows, targets, space, certifier, time_limit=seconds)
        found[certifier] = done
        proved, wrong = (
            float(np.mean([c.status == status for c in done])) for status in ("proved", "refuted")
        )
        runs = np.median([c.stats.get("strings_run", 1) for c in done])
        said = [f"{proved + wrong:.1%}", f"{proved:.1%}"]
        row(certifier, spread([c.seconds for c in done]), *said, f"{runs:.0f}")
    least = [
        floor(rnn, string, target, space) for string, target in zip(rows, targets, strict=True)
    ]
    row("floor", spread(least), "", "", "")
    pairs = list(zip(found["exact"], found["interval"], strict=True))
    time = sum(c.seconds for c, _ in pairs) / sum(i.seconds for _, i in pairs)
    saved = np.median(
        [size / c.stats["strings_run"] for size, (c, _) in zip(sizes, pairs, strict=True)]
    )
    beyond = sum(c.status == "proved" != i.status for c, i in pairs)
    behind = sum(i.status == "proved" != c.status for c, i in pairs)
    print(
        f"\nexact certifies {beyond} sentences that interval does not ({behind} the other way "
        f"round), in {time:.2f} of its time; {saved:,.0f} times fewer evaluations than "
        "enumeration (median)"
    )


def cores(corpus: Corpus, rnn: TwoLayerRNN, n: int) -> None:
    """Two workers beside one process: throughput, what starting them takes, and where time goes.

    "busy" is the share of two workers' time that is spent on sentences: what it lacks of 100 % is
    dispatch and waiting. A sentence that takes longer in a worker than alone says that the machine
    has no second core to spare.
    """
    rows, targets = [tuple(row) for row in corpus.test[:n]], corpus.test_labels[:n]
    space = corpus.space(*SPACES["dup 2, del 2, sub 2, k=8"])
    certify_many(rnn, rows[:16], targets[:16], space)  # warms up
    start = perf_counter()
    certify_many(rnn, rows[:16], targets[:16], space, n_jobs=2)
    starting = perf_counter() - start  # of which certifying is a small part
    certify_many(rnn, rows[:64], targets[:64], space, n_jobs=2)  # by now both are there
    times, inside = np.zeros((3, 2)), np.zeros((3, 2))
    for turn, n_jobs in itertools.product(range(3), (1, 2)):  # in turn: machines have moods
        start = perf_counter()
        found = certify_many(rnn, rows, targets, space, n_jobs=n_jobs)
        times[turn, n_jobs - 1] = perf_counter() - start
        inside[turn, n_jobs - 1] = sum(certificate.seconds for certificate in found)
    ratios = times[:, 0] / times[:, 1]
    print(
        f"\nTwo worker processes, {n} sentences: {np.median(ratios):.2f} times the sentences a "
        f"second of one ({ratios.min():.2f} to {ratios.max():.2f} in three turns), "
        f"{n / np.median(times[:, 0]):.0f}/s; "
        f"busy {np.median(inside[:, 1] / (2 * times[:, 1])):.0%}, a sentence takes "
        f"{np.median(inside[:, 1] / inside[:, 0]):.2f} times as long; starting them takes "
        f"{starting:.1f} s"
    )


def enumeration(corpus: Corpus, models: dict[str, TwoLayerRNN], most: int) -> None:
    """`exhaustive` for real, on the sentences whose spaces are nearest to some sizes."""
    space = corpus.space(*SPACES["dup 2, del 2, sub 2, k=8"])
    rows = [tuple(row) for row in corpus.test[:300]]
    sizes = np.array([space.size(string) for string in rows])
    print("\nEnumeration (dup 2, del 2, sub 2, k=8); processor time over that of exact\n")
    heading("model", "strings", "evaluations saved", "time", "same verdict", "margin gap")
    for (name, rnn), size in itertools.product(models.items(), (10**3, 10**4, 10**5, 10**6)):
        for i in np.argsort(abs(np.log(sizes / size)))[: size <= most]:
            (tight,) = certify_many(rnn, [rows[i]], None, space, tight=True)
            start = clock()
            (fast,) = certify_many(rnn, [rows[i]], None, space)
            middle = clock()
            (listed,) = certify_many(rnn, [rows[i]], None, space, "exhaustive", max_strings=10**7)
            times = f"{(clock() - middle) / (middle - start):,.0f}×"
            runs = listed.stats["strings_run"]
            saved = f"{runs / fast.stats['strings_run']:,.0f}×"
            same = tight.status == fast.status == listed.status
            row(name, f"{runs:,}", saved, times, same, f"{abs(tight.upper - listed.upper):.1e}")


def fresh(
    rnn: TwoLayerRNN, string: tuple[int, ...], corpus: Corpus, text: str, k: int, way: str
) -> None:
    """Ask of a new space: one keeps what it made of its last strings."""
    certify_many(rnn, [string], None, corpus.space(text, k), way)


def small(corpus: Corpus, models: dict[str, TwoLayerRNN], n: int) -> None:
    """Processor time beside `exhaustive`, in turns, where a space is small."""
    words = [word for string in corpus.test for word in string]
    rng = np.random.default_rng(0)
    print(
        "\nSmall spaces: processor time over that of `exhaustive`; median [95 % interval], most\n"
    )
    heading("model", "space", "words", "strings", "ratio", "most")
    for (name, rnn), (text, k, length) in itertools.product(models.items(), SMALL):
        ratios, sizes = [], []
        for i in range(n):
            string = tuple(words[i * length : (i + 1) * length])
            names = ("exact", "exhaustive")
            ways = {way: partial(fresh, rnn, string, corpus, text, k, way) for way in names}
            exact, listed = (min(times) for times in in_turns(ways, 3).values())
            ratios.append(exact / listed)
            sizes.append(corpus.space(text, k).size(string))
        drawn = np.median(rng.choice(ratios, size=(2000, n)), axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        ratio = f"{np.median(ratios):.2f} [{low:.2f}, {high:.2f}]"
        row(name, f"{text}, k={k}", length, f"{np.median(sizes):,.0f}", ratio, f"{max(ratios):.2f}")


def growth(corpus: Corpus, models: dict[str, TwoLayerRNN], n: int, file: str) -> None:
    """Median time against length, budget, logits and heads, at 25 words unless it is length.

    Of logits and heads models have random weights, and a bias for the target, so that it wins.
    """
    words = [word for string in corpus.test for word in string]
    shapes = {"linear readout, d=64": False, "residual, ReLU MLP, d=64": True}

    def biased(heads: int, logits: int) -> dict[str, TwoLayerRNN]:
        found = {}
        for name, mlp in shapes.items():
            rnn = untrained(64, heads, mlp=mlp, position=False, logits=logits)
            weights = {**rnn.weights, "b_U": 6.0 * F.one_hot(torch.tensor(0), logits).float()}
            found[name] = TwoLayerRNN(rnn.config, weights)
        return found

    def median(rnn: TwoLayerRNN, length: int, text: str, target: int | None) -> tuple[float, float]:
        rows = [tuple(words[i * length : (i + 1) * length]) for i in range(n)]
        space, targets = corpus.space(text, 8), None if target is None else [target] * n
        certify_many(rnn, rows[:1], None, space, time_limit=10.0)  # warms up
        times = []
        for i, string in enumerate(rows):
            start = clock()
            certify_many(rnn, [string], targets and [targets[i]], space, time_limit=10.0)
            times.append(clock() - start)
        return float(np.median(times)) * 1e3, float(np.median([space.size(x) for x in rows]))

    text = "dup:2,sub:2"
    Point = tuple[dict[str, TwoLayerRNN], int, str, int | None]
    sides: dict[str, dict[int, Point]] = {
        "words": {x: (models, x, text, None) for x in (5, 10, 15, 20, 30, 40, 50)},
        "budget of each edit": {x: (models, 25, f"dup:{x},sub:{x}", None) for x in range(5)},
        "logits": {x: (biased(2, x), 25, text, 0) for x in (2, 100, 1000, 10_000, 50_000)},
        "heads": {x: (biased(x, 2), 25, text, 0) for x in (1, 2, 4, 8)},
    }
    drawn: dict[str, dict[str, list[float]]] = {}
    for side, points in sides.items():
        print(f"\nGrowth with {side}: median ms of processor time; strings in the space\n")
        heading("", *map(str, points))
        drawn[side] = {}
        for name in next(iter(points.values()))[0]:
            found = [median(of[name], *how) for of, *how in points.values()]
            drawn[side][name] = [ms for ms, _ in found]
            row(name, *(f"{ms:.1f}" for ms in drawn[side][name]))
        row("strings", *(f"{size:.1e}" for _, size in found))
    if file:
        draw(file, {side: list(points) for side, points in sides.items()}, drawn)


def draw(file: str, sides: dict[str, list[int]], times: dict[str, dict[str, list[float]]]) -> None:
    import plotly.express as px

    points = [
        {"side": side, "x": str(x), "ms a verdict": ms, "model": name}
        for side, models in times.items()
        for name, found in models.items()
        for x, ms in zip(sides[side], found, strict=True)
    ]
    figure = px.line(
        points, x="x", y="ms a verdict", color="model", symbol="model", facet_col="side",
        facet_col_wrap=2, markers=True, log_y=True, width=1000, height=720,
    )  # fmt: skip
    figure.update_xaxes(matches=None, type="category", showticklabels=True)
    save_figure(figure, Path(file))


def main() -> None:
    said = options(__doc__, sentences=100, seconds=2.0, steps=600, growth="", only="", most=10**6)
    corpus = made_up()
    kinds: dict[str, tuple[int, int, bool, bool]] = {
        "linear readout, 1 head, d=64": (64, 1, False, False),
        "linear readout, 1 head, d=128, positions": (128, 1, False, True),
        "residual, ReLU MLP, 2 heads, d=64": (64, 2, True, False),
        "residual, ReLU MLP, 2 heads, d=128, positions": (128, 2, True, True),
    }
    models = {
        name: classifier(corpus, d, heads, mlp=mlp, position=position, steps=said.steps)
        for name, (d, heads, mlp, position) in kinds.items()
    }
    n, some = said.sentences, models["residual, ReLU MLP, 2 heads, d=64"]
    parts = {
        "verdicts": lambda: verdicts(corpus, models, n, said.seconds),
        "cores": lambda: cores(corpus, some, 4 * n),
        "enumeration": lambda: enumeration(corpus, models, said.most),
        "small": lambda: small(corpus, models, 6),
        "growth": lambda: growth(corpus, models, max(5, n // 4), said.growth),
    }
    for name, part in parts.items():
        if said.only in ("", name):
            part()


if __name__ == "__main__":
    main()
