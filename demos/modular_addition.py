"""What each head of a model of modular addition does, on all p² pairs.

Run it: ``python demos/modular_addition.py grokking.pth`` (a minute on one CPU core). The file is a
state dict of TransformerLens', of one layer that reads a, b and "=", and says a + b modulo p after
it; you bring it. Without one, a model is trained on all pairs first (two minutes; p = 113 takes
five: ``--prime 113 --steps 200``).
"""

# %% The task, and a model of it.
import argparse
import json
import time
import warnings
from pathlib import Path

import torch

from tl_dyck import AutomatonTask, Vocabulary, adopt, certify_language, head_truths
from tl_dyck.kit.environment import environment
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.studies.tables import markdown

warnings.simplefilter("ignore", DeprecationWarning)
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", nargs="?", help="a state dict, or a dict that has one as 'model'")
parser.add_argument("--prime", type=int, default=59, help="p, without a file")
parser.add_argument("--width", type=int, default=128, help="d_model, without a file")
parser.add_argument("--steps", type=int, default=300, help="of training, without a file")
parser.add_argument("--out", type=Path, default=Path("results/modular"))
said = parser.parse_args()


def empty(p: int, outputs: int, heads: int, d_model: int, d_head: int, d_mlp: int):
    """A model of these sizes, as "Progress measures for grokking" (arXiv 2301.05217) has it."""
    return HookedTransformer(
        HookedTransformerConfig(
            n_layers=1, n_heads=heads, d_model=d_model, d_head=d_head, d_mlp=d_mlp, n_ctx=3,
            d_vocab=p + 1, d_vocab_out=outputs, act_fn="relu", normalization_type=None, seed=0,
            device="cpu",
        )
    )  # fmt: skip


def read(file: str):
    saved = torch.load(file, map_location="cpu", weights_only=True)
    weights = saved.get("model", saved)
    heads, d_model, d_head = weights["blocks.0.attn.W_Q"].shape
    d_mlp, outputs = weights["blocks.0.mlp.W_in"].shape[1], weights["unembed.W_U"].shape[1]
    found = empty(len(weights["embed.W_E"]) - 1, outputs, heads, d_model, d_head, d_mlp)
    absent = found.load_state_dict(weights, strict=False).missing_keys
    # without biases they are zero; masks are made
    assert not [name for name in absent if ".W_" in name], absent
    return found


def train(p: int, d_model: int, steps: int):
    found = empty(p, p, 4, d_model, d_model // 4, 4 * d_model)
    a, b = (each.flatten() for each in torch.meshgrid(*2 * [torch.arange(p)], indexing="ij"))
    tokens, right = torch.stack([a, b, torch.full_like(a, p)], 1), (a + b) % p
    optimizer = torch.optim.AdamW(found.parameters(), lr=3e-3, weight_decay=1.0, betas=(0.9, 0.98))
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(found(tokens)[:, -1], right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


model = read(said.file) if said.file else train(said.prime, said.width, said.steps)
p = model.cfg.d_vocab - 1
task = AutomatonTask(
    name=f"a + b modulo {p}",
    symbols=[*map(str, range(p)), "="],
    start=(0, 0),  # symbols read, and their sum
    moves=lambda state: (
        {str(n): (state[0] + 1, (state[1] + n) % p) for n in range(p)}
        if state[0] < 2
        else {"=": (3, state[1])}
    ),
    answer=lambda state: state[1],
    places=[0, 1, 2],
)

# %% Is it right on all pairs?
started = time.process_time()
found = certify_language(model, task, until="signs", time_limit=60)
print(found)

# %% And if a head puts out zero, its mean, what it does on another pair, or attends to all alike?
model = adopt(model, Vocabulary(task.language, range(p + 1), bos=None), outputs=())
truths = head_truths(model, task)
print(truths)
took = time.process_time() - started
NAMES = {"needed": "zero", "mean": "mean", "carries": "exchanged", "pattern": "uniform"}
rows = []
for layer, head in truths.table[["layer", "head"]].itertuples(index=False):
    of = truths.broken[truths.broken["layer"].eq(layer) & truths.broken["head"].eq(head)]
    first, cells = of.set_index("change"), [f"L{layer}H{head}"]
    for change in NAMES:
        cells.append(f"{first['number'].get(change, 0):,}")
    for each in of.iloc[:1].itertuples():
        a, b, _ = task.language.parse(each.prefix).tolist()
        cells.append(f"{a} + {b} gives {each.said}, not {each.right} ({NAMES[each.change]})")
    rows.append(cells + [""] * (6 - len(cells)))
wrong = round((1 - truths.accuracy) * p * p)
text = markdown(["head", *NAMES.values(), "a wrong pair"], rows)
text += (
    f"\np = {p}: of {p * p:,} pairs {wrong:,} are wrong; **{found.status}**, least margin "
    f"{found.margin}; {took:.0f} CPU seconds.\n"
)
said.out.mkdir(parents=True, exist_ok=True)
(said.out / "environment.json").write_text(json.dumps(environment()), encoding="utf-8")
(said.out / "table.md").write_text(text, encoding="utf-8")
print(text)
