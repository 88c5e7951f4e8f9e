"""The largest of K numbers: train a model, decide all 64^K inputs, train on what is wrong, again.

Run it: ``python demos/repair_max.py`` (two minutes on 2 CPU cores; ``--help`` for what to change).
One attention head, no MLP, as in "Compact proofs" (Gross et al. 2024, arXiv 2406.11779). A model
that is right on 100,000 random inputs is wrong on some others; each round finds, of every answer,
the input with the least margin, or proves that there is no wrong one left. Where there are fewer
than 20 million inputs, all are run as well, and must give the same. What is done is kept, so that
an interrupted call goes on. The table of ten seeds (an hour):

    python demos/repair_max.py --numbers 4 8 16 --seeds 10
"""

# %% What is asked.
import argparse
import itertools
import math
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from tl_dyck import AutomatonTask, certify_language
from tl_dyck.intervals import mean
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.files import read_json, write_json
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.studies.tables import markdown

warnings.simplefilter("ignore", DeprecationWarning)
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
for name, value in {"values": 64, "steps": 3000, "rounds": 20, "width": 32, "seeds": 1}.items():
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--numbers", type=int, nargs="+", default=[4], help="K; several, for a table")
parser.add_argument("--seconds", type=float, default=60, help="at most, to count the wrong")
parser.add_argument("--out", type=Path, default="results/max", help="folder for what is done")
said = parser.parse_args()
symbols = [f"{value:02d} " for value in range(said.values)]


# %% What the model is to say: the automaton, in ten lines.
def largest_of(numbers: int) -> AutomatonTask:
    return AutomatonTask(
        name=f"max of {numbers}",
        symbols=symbols,
        start=0,
        moves=lambda seen: {symbol: max(seen, value) for value, symbol in enumerate(symbols)},
        answer=lambda seen: seen,
        train_lengths=[numbers],
        long_lengths=[numbers, numbers],
    )


# %% Train it, half on inputs whose numbers are close to each other.
def draw(n: int, numbers: int, generator: torch.Generator) -> torch.Tensor:
    anywhere = torch.randint(said.values, (n, numbers), generator=generator)
    top = torch.randint(said.values, (n, 1), generator=generator)
    below = torch.randint(4, (n, numbers), generator=generator)
    low = torch.randint(said.values, (n, numbers), generator=generator)
    close = torch.where(torch.rand(n, 1, generator=generator) < 0.5, top - below, top.minimum(low))
    mixed = torch.where(torch.rand(n, numbers, generator=generator) < 0.5, close, top - 1)
    pick = torch.rand(n, 1, generator=generator)
    return torch.where(pick < 0.3, anywhere, torch.where(pick < 0.6, close, mixed)).clamp(min=0)


def train(
    model: HookedTransformer,
    steps: int,
    rate: float,
    examples: torch.Tensor,
    generator: torch.Generator,
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        tokens = draw(256, examples.shape[1], generator)
        if len(examples):
            at = torch.randint(len(examples), (256,), generator=generator)
            tokens = torch.cat([tokens, examples[at]])
        wanted = tokens.max(1).values
        loss = torch.nn.functional.cross_entropy(model(tokens)[:, -1], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


# %% All inputs, run: what deciding must agree with.
def run_all(model: HookedTransformer) -> tuple[float, int]:
    """The least margin of all inputs and how many are wrong, in float64, 64 x 64 at a time."""
    w = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    of = {
        name: w[f"blocks.0.attn.{name}"][0] for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V")
    }
    read = w["embed.W_E"] + w["pos_embed.W_pos"][:, None]
    keys, query = read @ of["W_K"] + of["b_K"], read[-1] @ of["W_Q"] + of["b_Q"]
    scores = np.einsum("qd,pkd->pqk", query, keys) / math.sqrt(query.shape[1])
    shares = np.exp(scores - scores.max((0, 2), keepdims=True))
    said_of = (read @ of["W_V"] + of["b_V"]) @ w["blocks.0.attn.W_O"][0] @ w["unembed.W_U"]
    direct = (read[-1] + w["blocks.0.attn.b_O"]) @ w["unembed.W_U"] + w["unembed.b_U"]
    each, least, wrong = np.arange(said.values), math.inf, 0
    first = np.maximum(each[:, None], each)
    for rest in itertools.product(range(said.values), repeat=len(keys) - 2):
        share, places = shares[:, rest[-1]], list(enumerate(rest, start=2))
        whole = share[0][:, None] + share[1] + sum(share[at, value] for at, value in places)
        logits = (share[0][:, None] * said_of[0])[:, None] + (share[1][:, None] * said_of[1])
        logits += sum(share[at, value] * said_of[at, value] for at, value in places)
        logits = logits / whole[..., None] + direct[rest[-1]]
        wanted = np.maximum(first, max(rest))[..., None]
        right = np.take_along_axis(logits, wanted, -1)[..., 0]
        np.put_along_axis(logits, wanted, -np.inf, -1)
        margins = right - logits.max(-1)
        least, wrong = min(least, margins.min().item()), wrong + int((margins <= 0).sum())
    return least, wrong


# %% Decide, train on what is wrong and random inputs, again.
def repaired(numbers: int, seed: int) -> dict[str, object]:
    shape = {"d_model": said.width, "d_head": said.width, "n_ctx": numbers, "attn_only": True}
    sizes = {"d_vocab": said.values, "d_vocab_out": said.values, "normalization_type": None}
    model = HookedTransformer(
        HookedTransformerConfig(n_layers=1, n_heads=1, seed=seed, device="cpu", **shape, **sizes)
    )
    generator = torch.Generator().manual_seed(seed)
    task, examples = largest_of(numbers), torch.empty((0, numbers), dtype=torch.int64)
    start = time.process_time()
    train(model, said.steps, 3e-3, examples, generator)
    tokens = torch.randint(said.values, (10**5, numbers), generator=generator)
    with torch.no_grad():
        right = (model(tokens)[:, -1].argmax(-1) == tokens.max(1).values).double().mean().item()
    spent = time.process_time() - start
    print(f"\nmax of {numbers}, seed {seed}: trained in {spent:.0f} s of CPU, "
          f"{right:.3%} of 100,000 random inputs right")  # fmt: skip
    kept = {"random": right, "seconds": [], "wrong": []}
    for each in range(said.rounds + 1):
        start = time.process_time()
        found = certify_language(model, task, [numbers], until="likeliest")
        kept["seconds"].append(round(time.process_time() - start, 1))
        kept["wrong"].append(len(found.errors))
        print(f"round {each}: {found.status}, least margin {found.margin}, "
              f"{kept['seconds'][-1]} s; answers wrong somewhere: {len(found.errors)}")  # fmt: skip
        if not each:
            how = {"until": "counted", "time_limit": said.seconds}
            counted = certify_language(model, task, [numbers], **how)
            error, row = counted.by_length[0].error, counted.by_length[0]
            kept |= {"least": found.margin, "inputs": row.wrong if row.decided else list(error)}
            print(f"  wrong inputs: {row.wrong if row.decided else f'a share of {error}'}")
        if not each and said.values**numbers < 2e7:
            start = time.process_time()
            least, wrong = run_all(model)
            kept["run"] = [least, wrong, round(time.process_time() - start, 1)]
            print(f"  all run in {kept['run'][2]} s: least margin {least:.6g}, {wrong} wrong")
        if found.status == "proved" or each == said.rounds:
            break
        examples = torch.cat([examples, torch.tensor([error.tokens for error in found.errors])])
        train(model, said.steps // 10, 1e-3, examples, generator)
    return kept | {"status": found.status, "margin": found.margin.low}


# %% Seeds, and a table.
HEAD = (
    *("K", "seeds", "all 100,000 random inputs right", "wrong somewhere", "wrong inputs"),
    *("as when all are run", "CPU seconds of a decision", "rounds", "proved in the end"),
)


def row(numbers: int, models: list[dict]) -> list[str]:
    inputs = [each["inputs"] for each in models]
    low = [each if isinstance(each, int) else each[0] * said.values**numbers for each in inputs]
    exact = sum(isinstance(each, int) for each in inputs)
    run = [each for each in models if "run" in each]
    same = [
        each["least"][0] - 1e-9 <= each["run"][0] <= each["least"][1] + 1e-9
        and each["inputs"] == each["run"][1]
        for each in run
    ]
    seconds = [each["seconds"] for each in models]
    rounds = [len(each["wrong"]) - 1 for each in models if each["status"] == "proved"]
    return [
        str(numbers),
        str(len(models)),
        str(sum(each["random"] == 1 for each in models)),
        str(sum(each["wrong"][0] > 0 for each in models)),
        f"{min(low):.2g} to {max(low):.2g}" + (", at least" if exact < len(inputs) else ""),
        f"{sum(same)} of {len(run)}" if run else "–",
        f"{mean([*map(np.mean, seconds)]).text('.1f')}, at most {max(map(max, seconds))}",
        f"{mean(rounds).text('.1f')}",
        f"{len(rounds)} of {len(models)}",
    ]


@one_thread()
def main() -> None:
    rows = []
    for numbers in said.numbers:
        file = said.out / f"max-{numbers}-width-{said.width}.json"
        known = read_json(file) if file.exists() else {}
        for seed in range(said.seeds):
            if str(seed) not in known:
                known[str(seed)] = repaired(numbers, seed)
                said.out.mkdir(parents=True, exist_ok=True)
                write_json(file, known)
        rows.append(row(numbers, [known[str(seed)] for seed in range(said.seeds)]))
    table = markdown(HEAD, rows)
    (said.out / "table.md").write_text(table, encoding="utf-8")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
