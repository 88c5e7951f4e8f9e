"""The exact certifier on sentences: time, verdicts, model evaluations, beside other certifiers.

Vocabulary 10,000, sentences of 10 to 50 words, up to 8 synonyms a word. By default the words are
made up: each has a polarity, a sentence's label is the sign of its sum, synonyms have a similar
polarity, and the five most frequent words have none (they are what "del" may drop). One-layer
classifiers are trained on them, half of the time with random synonyms in place, so that some
predictions are robust and some are not. `--data FOLDER` takes ``train.tsv`` and ``dev.tsv``
(``sentence<TAB>label``) instead, with `--synonyms FILE`, a JSON object from word to list of words.

All certifiers answer the same questions one after the other in this process, with one thread; only
ratios carry over to other machines. The floor of a verdict is one pass over the string graph for
each logit, plus two forward passes (the original, and the worst string): "floor" times just that,
on the same graphs.

Run with ``python tests/benchmarks/bench_certify.py``; ``--growth FILE.html`` draws cost against
length and budget.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F

from tl_dyck.certify import (
    STOP_WORDS,
    Certificate,
    PerturbationSpace,
    certify_many,
    load_synonyms,
    parse_space,
    substitution_table,
)
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import emission_costs, sweep
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import RNNConfig, TwoLayerRNN, weight_shapes
from tl_dyck.text import Sentence, build_words, load_folder
from tl_dyck.text.edits import pad

VOCABULARY = 10_000
SPACES = {
    "dup 2, sub 2, k=1": ("dup:2,sub:2", 1),
    "dup 2, sub 2, k=8": ("dup:2,sub:2", 8),
    "del 2, sub 2, k=8": ("del:2,sub:2", 8),
    "dup 2, del 2, sub 2, k=8": ("dup:2,del:2,sub:2", 8),
}


@dataclass(frozen=True)
class Corpus:
    """Sentences as token ids, and what may be done to them."""

    train: list[list[int]]
    train_labels: list[int]
    test: list[list[int]]
    test_labels: list[int]
    synonyms: dict[int, tuple[int, ...]]
    stop_words: list[int]
    n_words: int

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

    return Corpus(*draw(20_000), *draw(1000), synonyms, list(range(5)), VOCABULARY)


def from_folder(folder: Path, synonyms: Path) -> Corpus:
    found = load_folder(folder)
    words = build_words(found.train)
    index = {word: token for token, word in enumerate(words)}

    def ids(rows: Sequence[Sentence]) -> tuple[list[list[int]], list[int]]:
        return [[index.get(word, 0) for word in row.text.split()] for row in rows], [
            row.label for row in rows
        ]

    kept = [row for row in found.test if 10 <= len(row.text.split()) <= 50]
    table = substitution_table(load_synonyms(synonyms), words)
    return Corpus(
        *ids(found.train),
        *ids(kept),
        table,
        [index[word] for word in STOP_WORDS if word in index],
        len(words),
    )


def classifier(
    corpus: Corpus, d: int, heads: int, *, mlp: bool, position: bool, steps: int
) -> TwoLayerRNN:
    """Train a one-layer classifier; half of each batch has random synonyms in place."""
    config = RNNConfig(
        d_model=d,
        n_heads=heads,
        d_head=d // heads,
        d_vocab=corpus.n_words,
        d_vocab_out=2,
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
    rnn = TwoLayerRNN(config, weights)
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
    return TwoLayerRNN(config, done)


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


def milliseconds(values: Iterable[float]) -> str:
    ms = np.array(list(values)) * 1e3
    return f"{np.median(ms):8.1f}{np.quantile(ms, 0.95):8.1f}{ms.max():8.1f}"


def share(certificates: Sequence[Certificate], *statuses: str) -> float:
    return float(np.mean([c.status in statuses for c in certificates]))


def verdicts(corpus: Corpus, models: dict[str, TwoLayerRNN], n: int, seconds: float) -> None:
    strings = [tuple(row) for row in corpus.test]
    print(f"\n{n} sentences that are classified right; a limit of {seconds:g} s each; times in ms")
    head = (
        f"{'certifier':<10}{'median':>8}{'95 %':>8}{'max':>8}{'decided':>9}{'certified':>10}"
        f"{'evals':>7}"
    )
    for name, rnn in models.items():
        tokens, lengths = pad(strings)
        with torch.no_grad():
            right = rnn.last_logits(tokens, lengths).argmax(-1) == torch.tensor(corpus.test_labels)
        chosen = np.flatnonzero(right.numpy())[:n]
        rows, targets = [strings[i] for i in chosen], [corpus.test_labels[i] for i in chosen]
        print(f"\n{name}: accuracy {float(right.float().mean()):.1%}")
        for label, (text, k) in SPACES.items():
            space = corpus.space(text, k)
            sizes = [space.size(row) for row in rows]
            print(
                f"  {label}: {np.median(sizes):,.0f} strings (median), "
                f"{max(sizes):,} at most\n    {head}"
            )
            certify_many(rnn, rows[:3], targets[:3], space)  # warms up
            found = {}
            for certifier in ("exact", "interval"):
                found[certifier] = certify_many(
                    rnn, rows, targets, space, certifier, time_limit=seconds
                )
                done = found[certifier]
                runs = np.median([c.stats.get("strings_run", 1) for c in done])
                print(
                    f"    {certifier:<10}{milliseconds(c.seconds for c in done)}"
                    f"{share(done, 'certified', 'falsified'):>9.1%}"
                    f"{share(done, 'certified'):>10.1%}{runs:>7.0f}"
                )
            exact, interval = found["exact"], found["interval"]
            least = [
                floor(rnn, row, target, space) for row, target in zip(rows, targets, strict=True)
            ]
            print(f"    {'floor':<10}{milliseconds(least)}")
            time = sum(c.seconds for c in exact) / sum(c.seconds for c in interval)
            saved = np.median(
                [size / c.stats["strings_run"] for size, c in zip(sizes, exact, strict=True)]
            )
            beyond = sum(
                c.status == "certified" != i.status for c, i in zip(exact, interval, strict=True)
            )
            behind = sum(
                i.status == "certified" != c.status for c, i in zip(exact, interval, strict=True)
            )
            print(
                f"    exact certifies {beyond} sentences that interval does not ({behind} the "
                f"other way round), in {time:.2f} of its time; {saved:,.0f} times fewer "
                "evaluations than enumeration (median)"
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


def enumeration(corpus: Corpus, rnn: TwoLayerRNN, n: int) -> None:
    """`exhaustive` for real, on the sentences whose spaces are nearest to a million strings."""
    space = corpus.space(*SPACES["dup 2, del 2, sub 2, k=8"])
    rows = [
        (tuple(row), label)
        for row, label in zip(corpus.test[:300], corpus.test_labels[:300], strict=True)
    ]
    rows.sort(key=lambda row: abs(np.log(space.size(row[0]) / 1e6)))
    print("\nEnumeration of about a million strings (dup 2, del 2, sub 2, k=8)")
    print(
        f"{'strings':>12}{'evaluations saved':>19}{'time':>10}{'same verdict':>14}"
        f"{'|margin gap|':>14}"
    )
    for row, label in rows[:n]:
        (exact,) = certify_many(rnn, [row], [label], space, tight=True)
        (fast,) = certify_many(rnn, [row], [label], space)
        (listed,) = certify_many(rnn, [row], [label], space, "exhaustive", max_strings=10**7)
        gap = abs(exact.upper - listed.upper)
        print(
            f"{listed.stats['strings_run']:>12,}"
            f"{listed.stats['strings_run'] / fast.stats['strings_run']:>18,.0f}×"
            f"{listed.seconds / fast.seconds:>9,.0f}×"
            f"{exact.status == fast.status == listed.status!s:>14}{gap:>14.1e}"
        )


def programme(corpus: Corpus, rnn: TwoLayerRNN, n: int) -> None:
    """Shortest paths beside an integer programme that scipy's HiGHS solves, on short sentences.

    It is the programme of ``tests/certify/exact/test_integer_programme.py``: one path through the
    lattice, its last token fixed, the ratio of the attention by Dinkelbach's method.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.certify.exact.test_integer_programme import least_margin

    space = corpus.space(*SPACES["dup 2, sub 2, k=1"])
    rows = [tuple(row[:8]) for row in corpus.test[:n]]
    certify_many(rnn, rows[:3], [0] * 3, space, tight=True)  # warms up
    gaps, times = [], []
    for row in rows:
        start = perf_counter()
        (found,) = certify_many(rnn, [row], [0], space, tight=True)
        middle = perf_counter()
        least = least_margin(rnn, space.lattice(row), 0)
        times.append((middle - start, perf_counter() - middle))
        gaps.append(abs(found.lower - least))
    ours, theirs = np.array(times).T
    print(
        f"\nInteger programme (HiGHS) on {n} sentences of 8 words, dup 2, sub 2, k=1\n"
        f"    {'':<16}{'median':>8}{'95 %':>8}{'max':>8}\n"
        f"    {'shortest paths':<16}{milliseconds(ours)}\n"
        f"    {'HiGHS':<16}{milliseconds(theirs)}\n"
        f"    HiGHS takes {np.median(theirs / ours):.0f} times as long (median); same optimum on "
        f"{sum(gap < 1e-7 for gap in gaps)} of {n}, largest difference {max(gaps):.1e}"
    )


def growth(corpus: Corpus, models: dict[str, TwoLayerRNN], n: int, file: Path | None) -> None:
    """Median time against length at fixed budgets, and against the budget at fixed length."""
    lengths, budgets = (5, 10, 15, 20, 30, 40, 50), (0, 1, 2, 3, 4)
    words = [word for row in corpus.test for word in row]
    by_length: dict[str, list[float]] = {}
    by_budget: dict[str, list[float]] = {}

    def median(rnn: TwoLayerRNN, length: int, text: str) -> tuple[float, float]:
        rows = [tuple(words[i * length : (i + 1) * length]) for i in range(n)]
        space = corpus.space(text, 8)
        found = certify_many(rnn, rows, None, space, time_limit=10.0)
        return float(np.median([c.seconds for c in found])) * 1e3, float(
            np.median([space.size(row) for row in rows])
        )

    print("\nGrowth: median ms; (strings in the space)")
    for name, rnn in models.items():
        by_length[name] = [median(rnn, length, "dup:2,sub:2")[0] for length in lengths]
        by_budget[name] = [median(rnn, 25, f"dup:{b},sub:{b}")[0] for b in budgets]
        print(f"  {name}")
        print(
            "    length "
            + "  ".join(f"{x}: {y:.1f}" for x, y in zip(lengths, by_length[name], strict=True))
        )
        slope = np.polyfit(np.log(lengths[1:]), np.log(by_length[name][1:]), 1)[0]
        print(
            "    budget "
            + "  ".join(f"{x}: {y:.1f}" for x, y in zip(budgets, by_budget[name], strict=True))
        )
        print(f"    time grows with length to the power {slope:.2f}")
    some = next(iter(models.values()))
    at_length = [median(some, length, "dup:2,sub:2")[1] for length in lengths]
    at_budget = [median(some, 25, f"dup:{b},sub:{b}")[1] for b in budgets]
    print(
        "    strings by length "
        + "  ".join(f"{x}: {y:.1e}" for x, y in zip(lengths, at_length, strict=True))
    )
    print(
        "    strings by budget "
        + "  ".join(f"{x}: {y:.1e}" for x, y in zip(budgets, at_budget, strict=True))
    )
    if file is not None:
        _draw(file, lengths, by_length, at_length, budgets, by_budget, at_budget)


def _draw(
    file: Path,
    lengths: Any,
    by_length: Any,
    at_length: Any,
    budgets: Any,
    by_budget: Any,
    at_budget: Any,
) -> None:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = ("sentences of n words, dup 2 and sub 2", "25 words, dup b and sub b")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles)
    colors, symbols = (
        ("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
        ("circle", "square", "diamond", "cross"),
    )
    for column, (x, timed, sizes) in enumerate(
        ((lengths, by_length, at_length), (budgets, by_budget, at_budget)), 1
    ):
        for (name, y), color, symbol in zip(timed.items(), colors, symbols, strict=False):
            marks = {"color": color, "symbol": symbol, "size": 9}
            trace = go.Scatter(
                x=x, y=y, name=name, mode="lines+markers", marker=marks, showlegend=column == 1
            )
            figure.add_trace(trace, row=1, col=column)
        said = [f"{size:.0e}" for size in sizes]
        figure.add_trace(
            go.Scatter(
                x=x,
                y=[max(v) for v in zip(*timed.values(), strict=True)],
                text=said,
                mode="text",
                textposition="top center",
                showlegend=False,
            ),
            row=1,
            col=column,
        )
    figure.update_xaxes(title_text="words n", row=1, col=1)
    figure.update_xaxes(title_text="budget b of each transformation", dtick=1, row=1, col=2)
    figure.update_yaxes(title_text="median time of a verdict (ms)", rangemode="tozero")
    figure.update_layout(
        template="plotly_white",
        width=1100,
        height=420,
        legend={"orientation": "h", "y": -0.22},
        margin={"t": 60, "b": 90},
        title="Exact verdicts; above the points: strings in the space",
    )
    figure.write_html(file)
    print(f"    drawn in {file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0, help="time limit of a verdict")
    parser.add_argument("--steps", type=int, default=600, help="of training")
    parser.add_argument("--data", type=Path, help="folder with train.tsv and dev.tsv")
    parser.add_argument("--synonyms", type=Path, help="JSON: word to list of words")
    parser.add_argument("--growth", type=Path, help="HTML file for the plots of growth")
    parser.add_argument(
        "--only", choices=("verdicts", "cores", "enumeration", "programme", "growth")
    )
    arguments = parser.parse_args()
    if (arguments.data is None) != (arguments.synonyms is None):
        parser.error("--data and --synonyms go together")
    torch.set_num_threads(1)
    corpus = (
        made_up() if arguments.data is None else from_folder(arguments.data, arguments.synonyms)
    )
    kinds = {
        "linear readout, 1 head, d=64": (64, 1, False, False),
        "linear readout, 1 head, d=128, positions": (128, 1, False, True),
        "residual, ReLU MLP, 2 heads, d=64": (64, 2, True, False),
        "residual, ReLU MLP, 2 heads, d=128, positions": (128, 2, True, True),
    }
    models = {}
    for name, (d, heads, mlp, position) in kinds.items():
        models[name] = classifier(
            corpus, d, heads, mlp=mlp, position=position, steps=arguments.steps
        )
    parts: dict[str, Callable[[], None]] = {
        "verdicts": lambda: verdicts(corpus, models, arguments.sentences, arguments.seconds),
        "cores": lambda: cores(
            corpus, models["residual, ReLU MLP, 2 heads, d=64"], 4 * arguments.sentences
        ),
        "enumeration": lambda: enumeration(corpus, models["residual, ReLU MLP, 2 heads, d=64"], 3),
        "programme": lambda: programme(
            corpus, models["linear readout, 1 head, d=64"], max(3, arguments.sentences // 5)
        ),
        "growth": lambda: growth(
            corpus, models, max(5, arguments.sentences // 4), arguments.growth
        ),
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            part()


if __name__ == "__main__":
    main()
