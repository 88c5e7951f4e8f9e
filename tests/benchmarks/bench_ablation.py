"""How fast head importance is.

``python tests/benchmarks/bench_ablation.py [--size gpt2] [--batch 64] [--threads 1]``.

Frozen importance of all heads, beside a loop over heads that runs the whole model with a hook for
each, in one process, on the same tokens, with the same numbers as result. Beside both the
arithmetic floor: the operations of the matrix products that no method can do without, as long as
each head is ablated on its own and exactly. Ablating a head of layer l leaves everything before the
attention output of layer l as it was; all after it is different for every head:

    per head and token: 8 d² (the MLP of its layer) + 12 d² for each later layer + d · d_vocab (the
    unembedding),

half of them multiplications, against 12 d² for every layer in the loop. Attention itself,
``2 pos · d`` per layer and token, is counted too. What else the ratio owes is not arithmetic.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import torch

from tl_dyck.ablation import frozen_importance, log_likelihood
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

SIZES = {
    "small": {"n_layers": 4, "n_heads": 4, "d_model": 128, "d_head": 32, "d_vocab": 500},
    "gpt2": {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_vocab": 50257},
    "gpt2-few-tokens": {
        "n_layers": 12,
        "n_heads": 12,
        "d_model": 768,
        "d_head": 64,
        "d_vocab": 1000,
    },
}


def build(size: str, device: str, n_ctx: int) -> Any:
    """A GPT-2-shaped model with random weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        cfg = HookedTransformerConfig(**SIZES[size], n_ctx=n_ctx, act_fn="gelu_new", device=device)
        return HookedTransformer(cfg)


def multiplications(model: Any, length: int) -> tuple[float, float]:
    """Of the loop and of the least possible, per token and head, on average over heads."""
    cfg = model.cfg
    attention, mlp = 4 * cfg.d_model**2 + 2 * length * cfg.d_model, 2 * cfg.d_model * cfg.d_mlp
    unembed = cfg.d_model * cfg.d_vocab
    loop = cfg.n_layers * (attention + mlp) + unembed
    least = (cfg.n_layers - 1) / 2 * (attention + mlp) + mlp + unembed
    return loop, least


def loop(model: Any, tokens: torch.Tensor, rows: int, heads: list[tuple[int, int]]) -> torch.Tensor:
    """The obvious way: one run per head, for each batch of tokens that fits."""

    @torch.no_grad()
    def run(batch: torch.Tensor, layer: int, head: int) -> torch.Tensor:
        def hook(z: torch.Tensor, hook: Any) -> torch.Tensor:
            z[:, :, head] = 0
            return z

        logits = model.run_with_hooks(batch, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", hook)])
        return log_likelihood(logits, batch)

    with torch.no_grad():
        intact = torch.cat([log_likelihood(model(batch), batch) for batch in tokens.split(rows)])
    drops = [
        (intact - torch.cat([run(batch, *head) for batch in tokens.split(rows)])).double().mean()
        for head in heads
    ]
    return torch.stack(drops)


def timed(call: Any, device: str) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument(
        "--batch", type=int, default=None, help="strings (default: 64, of size gpt2 8)"
    )
    parser.add_argument(
        "--length", type=int, default=None, help="tokens per string (default: 128, of size gpt2 64)"
    )
    parser.add_argument(
        "--chunk",
        type=int,
        default=None,
        help="strings per forward pass, in both (default: its own)",
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    large = arguments.size != "small"
    batch, length = (
        arguments.batch or (8 if large else 64),
        arguments.length or (64 if large else 128),
    )
    model = build(arguments.size, arguments.device, length)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.cfg.d_vocab, (batch, length), generator=generator).to(
        arguments.device
    )
    heads = [
        (layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)
    ]
    rows = arguments.chunk or batch
    model(tokens[:1])
    times = []
    for _ in range(arguments.repeats):
        fast, found = timed(
            lambda: frozen_importance(model, tokens, chunk=arguments.chunk), arguments.device
        )
        slow, wanted = timed(lambda: loop(model, tokens, rows, heads), arguments.device)
        difference = float((torch.tensor(found.values).flatten() - wanted.cpu()).abs().max())
        times.append((slow, fast))
        print(
            f"loop {slow:.2f} s, batched {fast:.2f} s: {slow / fast:.2f}×; "
            f"results differ by {difference:.1e}",
            flush=True,
        )
    whole, least = multiplications(model, length)
    ratio = statistics.median(slow / fast for slow, fast in times)
    print(
        f"\n{arguments.size}: {len(heads)} heads, {batch}×{length} tokens, {arguments.device}, "
        f"{arguments.threads} thread(s), chunk {arguments.chunk or 'own'}: {ratio:.2f}× (by "
        f"arithmetic alone {whole / least:.2f}×)"
    )


if __name__ == "__main__":
    main()
