"""Your own model: attention-only, own token ids, no tokenizer. Every measure of it, from a file.

Run it: ``python demos/bring_your_own.py`` (half a minute on 2 CPU cores).
It writes ``own.pt``, a state dict, and two pages that any browser opens, offline too.
"""

# %% Your model, trained your way: ids padding 0, BOS 1, ( 2, ) 3, [ 4, ] 5; saved as a state dict.
import sys
import warnings
from functools import partial
from pathlib import Path

import torch

import tl_dyck
from tl_dyck import ablation
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.report import widgets

warnings.simplefilter("ignore", DeprecationWarning)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()
task = tl_dyck.load_task("dyck-2-4")
ids = tl_dyck.Vocabulary(task.language, {"(": 2, ")": 3, "[": 4, "]": 5}, bos=1, padding=0)
shape = {"d_model": 64, "n_heads": 2, "d_head": 32, "n_ctx": 32, "attn_only": True, "d_vocab": 6}


def trained(seed: int, n_layers: int) -> HookedTransformer:
    cfg = HookedTransformerConfig(n_layers=n_layers, seed=seed, device="cpu", **shape)
    model = HookedTransformer(cfg)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        tokens = ids.to_model(task.sample(32, generator=generator))
        loss = model(tokens, return_type="loss", loss_per_token=True)[tokens[:, 1:] > 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), out / "own.pt")
    return model


two = [trained(seed, n_layers=2) for seed in range(2)]
one = trained(0, n_layers=1)

# %% Adopt it: say once which id is which bracket. (Forty lines from here to the end.)
elsewhere = HookedTransformer(HookedTransformerConfig(n_layers=1, device="cpu", **shape))
elsewhere.load_state_dict(torch.load(out / "own.pt", weights_only=True))
one = tl_dyck.adopt(elsewhere, ids)
models = [tl_dyck.adopt(model, ids) for model in two]
try:
    task.closing_accuracy(two[0])
except tl_dyck.VocabularyError as refused:
    print("without a vocabulary:", refused)

# %% Is it right? Beside models that keep no stack.
print(task.closing_accuracy(models[0], n=200), task.closing_chance(), sep="\n")

# %% Every probe.
print(tl_dyck.attention_variation(models))
print(tl_dyck.stack_likeness(models[0], task))
for head in range(2):
    print(tl_dyck.balance_violation(models[0], task, first_layer="means", head=head))

# %% Head importance, and all that is measured on heads in one table.
tokens = task.sample(50, generator=torch.Generator().manual_seed(0))
metric = partial(ablation.log_likelihood, ignore=task.language.bos_token)
print(tl_dyck.frozen_importance(models[0], tokens, metric, "mean"))
print(tl_dyck.measure_heads(models[0], task, modes=("zero", "gradient"), n=50)[0].round(3))

# %% Pictures.
widgets.attention(models[0], "[(())](").save(out / "attention.html")
widgets.attention_seeds(models, "[(())](").save(out / "seeds.html")

# %% One layer: an RNN that equals it, a proof or a counterexample, every prefix.
rnn = tl_dyck.export_rnn(one)
found = tl_dyck.certify_dyck(one, task, n=2, length=9, budget=1)
print(rnn.config.state, found.share("proved"), found.rows[0].certificate, sep="\n")
print(tl_dyck.certify_language(one, task, 6))
