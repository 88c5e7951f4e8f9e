"""Which heads does a model need? For a HookedTransformer unlike ours, by a metric of one's own.

Run it: ``python demos/ablate_any_model.py`` (half a minute on 2 CPU cores).
It writes ``pruning.html``, which any browser opens, offline too.
"""

# %% A GPT-2-shaped model from a plain config, and data of our own: six random tokens, twice.
import sys
import warnings
from pathlib import Path

import torch

from tl_dyck import FinetuneConfig, finetuned_importance, frozen_importance, gradient_importance
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

warnings.simplefilter("ignore", DeprecationWarning)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("pruning.html")
HALF, WORDS = 6, 12

config = HookedTransformerConfig(
    n_layers=2,
    n_heads=4,
    d_model=32,
    d_head=8,
    d_vocab=WORDS,
    n_ctx=2 * HALF,
    act_fn="gelu_new",
    seed=0,
    device="cpu",
)
model = HookedTransformer(config)


def repeated(n: int, generator: torch.Generator) -> torch.Tensor:
    half = torch.stack([torch.randperm(WORDS, generator=generator)[:HALF] for _ in range(n)])
    return torch.cat([half, half], 1)


# %% A metric takes logits and tokens, returns one number per example: is the second half likely?
def second_half(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    found = logits[:, HALF:-1].log_softmax(-1)
    return found.gather(-1, tokens[:, HALF + 1 :, None])[..., 0].mean(-1)


# %% Train it. Predicting the second half takes attention: to six tokens before, less one.
generator = torch.Generator().manual_seed(0)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(steps):
    tokens = repeated(64, generator)
    loss = -second_half(model(tokens), tokens).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(
            f"step {step}: {loss.item():.3f} nats per token (chance: "
            f"{torch.tensor(float(WORDS)).log():.3f})"
        )
print(f"after {steps} steps: {loss.item():.3f} nats per token")

# %% Frozen: disable each head while all else stays, in four ways, and the gradient as a proxy.
# Nobody knows of this model which tokens are BOS or filling: here all positions are real.
data = repeated(200, generator)
real = torch.ones_like(data, dtype=torch.bool)
for mode in ("zero", "mean", "resample", "uniform-pattern"):
    print(frozen_importance(model, data, second_half, mode, where=real))
print(gradient_importance(model, data, second_half))

# %% Fine-tuned: gates close as open heads become more expensive, and all weights adapt meanwhile.
options = FinetuneConfig(penalties=(0.01, 0.1, 0.3, 1.0), steps=60, batch_size=64)
found = finetuned_importance(
    model, repeated, second_half, options=options, ignore=(), progress=False
)
print(found)
print("removed, first to last:", [f"L{layer}H{head}" for layer, head in found.removal_order])
print(found.path.to_string(index=False))
found.plot().write_html(out, include_plotlyjs=True)
print(f"wrote {out}")
