"""ARENA's cumulative sum, from `torch.load` to the verdict on all 6.7e20 sequences of 20 numbers.

Run it: ``python demos/cumulative_sum.py cumsum_model.pt`` (half a minute on 2 CPU cores). The file
is that of ARENA's puzzle of November 2023, and you bring it; without it, a model of the same shape
is trained for a minute first. Numbers from -5 to 5 are read one after the other, and after each the
model says whether their sum so far is negative, zero or positive.
"""

# %% What the model is to say: the automaton, in ten lines.
import argparse
import warnings

import torch

from tl_dyck import AutomatonTask, certify_language, prove_language
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

warnings.simplefilter("ignore", DeprecationWarning)
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", nargs="?", help="cumsum_model.pt")
parser.add_argument("--steps", type=int, default=2000, help="of training, without a file")
parser.add_argument("--length", type=int, default=20)
parser.add_argument("--bits", type=int, nargs="*", default=[8, 7, 6])
parser.add_argument("--seconds", type=float, default=60, help="at most, for a verdict")
parser.add_argument("--proof", help="if it is right: a file for tl_dyck/certify/check_automaton.py")
said = parser.parse_args()
numbers = [*range(6), *range(-5, 0)]  # token v mod 11 is the number v
task = AutomatonTask(
    name="cumulative sum",
    symbols=[f"{number:+d}" for number in numbers],
    start=0,
    moves=lambda total: {f"{number:+d}": total + number for number in numbers},
    answer=lambda total: (total > 0) - (total < 0) + 1,  # logit 0, 1 or 2
    train_lengths=[20],
    long_lengths=[1, 20],
)

# %% The model.
model = HookedTransformer(
    HookedTransformerConfig(
        n_layers=1, n_heads=1, d_model=24, d_head=12, d_mlp=8, n_ctx=20, d_vocab=11, d_vocab_out=3,
        act_fn="relu", normalization_type=None, seed=0, device="cpu",
    )
)  # fmt: skip


def train(steps: int) -> None:
    values, generator = torch.tensor(numbers), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        tokens = torch.randint(11, (256, 20), generator=generator)
        wanted = values[tokens].cumsum(-1).sign() + 1
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


if said.file is None:
    train(said.steps)
else:
    weights = torch.load(said.file, map_location="cpu", weights_only=True)
    ignored = model.load_state_dict(weights, strict=False)  # masks of an old release are left over
    assert not [name for name in ignored.missing_keys if "mask" not in name and "IGN" not in name]

# %% Is it right on every sequence, at all positions?
how = {"until": "counted", "time_limit": said.seconds}
found = certify_language(model, task, range(1, said.length + 1), **how)
print(found)
for row in found.by_length:
    print(f"{row.length:>2} numbers: {row.prefixes:>24,} sequences, least margin {row.margin}")

# %% A proof that anyone can check.
if said.proof and found.status == "proved":
    print("Proof:", prove_language(model, task, said.length).save(said.proof))

# %% And if its weights are rounded?
for bits in said.bits:
    rounded = HookedTransformer(model.cfg)
    rounded.load_state_dict(model.state_dict())
    with torch.no_grad():
        for weight in rounded.parameters():
            step = (weight.abs().max() / (2 ** (bits - 1) - 1)).clamp(min=1e-30)
            weight.copy_((weight / step).round() * step)
    found = certify_language(rounded, task, range(1, said.length + 1), **how)
    print(f"{bits} bits:")
    print(found)
    for row in found.by_length:
        if row.wrong:
            print(f"{row.length:>2} numbers: wrong on a share of {row.error}")
