"""The largest of K numbers: train a model, decide all 64^K inputs, train on what is wrong, again.

Run it: ``python demos/repair_max.py`` (some minutes on 2 CPU cores; ``--help`` for what to change).
One attention head, no MLP, as in "Compact proofs" (Gross et al. 2024, arXiv 2406.11779). A model
that is right on 100,000 random inputs is wrong on some others; each round finds, of every answer,
the input with the least margin, or proves that there is no wrong one left.
"""

# %% What the model is to say: the automaton, in ten lines.
import argparse
import time
import warnings

import torch

from tl_dyck import AutomatonTask, certify_language
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

warnings.simplefilter("ignore", DeprecationWarning)
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
for name, value in {"numbers": 4, "values": 64, "steps": 3000, "rounds": 20, "width": 64}.items():
    parser.add_argument(f"--{name}", type=int, default=value)
said = parser.parse_args()
symbols = [f"{value:02d} " for value in range(said.values)]
task = AutomatonTask(
    name=f"max of {said.numbers}",
    symbols=symbols,
    start=0,
    moves=lambda seen: {symbol: max(seen, value) for value, symbol in enumerate(symbols)},
    answer=lambda seen: seen,
    train_lengths=[said.numbers],
    long_lengths=[said.numbers, said.numbers],
)

# %% Train it, half on inputs whose numbers are close to each other.
shape = {"d_model": said.width, "d_head": said.width, "n_ctx": said.numbers, "attn_only": True}
sizes = {"d_vocab": said.values, "d_vocab_out": said.values, "normalization_type": None}
model = HookedTransformer(
    HookedTransformerConfig(n_layers=1, n_heads=1, seed=0, device="cpu", **shape, **sizes)
)
generator = torch.Generator().manual_seed(0)


def draw(n: int) -> torch.Tensor:
    anywhere = torch.randint(said.values, (n, said.numbers), generator=generator)
    top = torch.randint(said.values, (n, 1), generator=generator)
    below = torch.randint(4, (n, said.numbers), generator=generator)
    low = torch.randint(said.values, (n, said.numbers), generator=generator)
    close = torch.where(torch.rand(n, 1, generator=generator) < 0.5, top - below, top.minimum(low))
    mixed = torch.where(torch.rand(n, said.numbers, generator=generator) < 0.5, close, top - 1)
    pick = torch.rand(n, 1, generator=generator)
    return torch.where(pick < 0.3, anywhere, torch.where(pick < 0.6, close, mixed)).clamp(min=0)


def train(steps: int, rate: float, examples: torch.Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        tokens = draw(256)
        if len(examples):
            at = torch.randint(len(examples), (256,), generator=generator)
            tokens = torch.cat([tokens, examples[at]])
        wanted = tokens.max(1).values
        loss = torch.nn.functional.cross_entropy(model(tokens)[:, -1], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


# %% Decide, train on what is wrong and random inputs, again.
examples = torch.empty((0, said.numbers), dtype=torch.int64)
start = time.perf_counter()
train(said.steps, 3e-3, examples)
tokens = torch.randint(said.values, (10**5, said.numbers), generator=generator)
with torch.no_grad():
    right = (model(tokens)[:, -1].argmax(-1) == tokens.max(1).values).double().mean()
print(f"trained in {time.perf_counter() - start:.0f} s: {right:.3%} of 100,000 random inputs right")
for each in range(1, said.rounds + 1):
    found = certify_language(model, task, [said.numbers], until="likeliest")
    print(f"round {each}: {found.status}, least margin {found.margin}, {found.seconds:.1f} s,")
    print(f"  {len(found.errors)} answers are wrong somewhere")
    if found.status == "proved":
        break
    examples = torch.cat([examples, torch.tensor([error.tokens for error in found.errors])])
    train(said.steps // 10, 1e-3, examples)
print(certify_language(model, task, [said.numbers], time_limit=60))
