"""A model in which it is known what each head is for.

It reads six tokens out of four kinds. From position 5 it should say what stood at position 0, from
position 4 what stood at position 1; head 0 copies the one, head 2 the other. Heads 1 and 3 are of
no use: head 1 writes where nothing reads, head 3 writes nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.ablation.conftest import plain_model

KINDS, LENGTH = 4, 6
USEFUL, USELESS = (0, 2), (1, 3)
_WIDTH = KINDS + LENGTH + 1  # what a token is, where it is, and a coordinate that nothing reads


def planted(*, scale: float = 10.0) -> Any:
    model = plain_model(
        n_layers=1, n_heads=4, d_model=_WIDTH, d_head=KINDS, d_vocab=KINDS, n_ctx=LENGTH,
        attn_only=True, normalization_type=None, dtype=torch.float32, seed=1,
    )  # fmt: skip
    attn = model.blocks[0].attn
    with torch.no_grad():
        for parameter in (
            *model.embed.parameters(),
            *model.pos_embed.parameters(),
            *model.unembed.parameters(),
        ):
            parameter.zero_()
        model.embed.W_E[:, :KINDS] = torch.eye(KINDS)
        model.pos_embed.W_pos[:, KINDS : KINDS + LENGTH] = torch.eye(LENGTH)
        model.unembed.W_U[:KINDS] = scale * torch.eye(KINDS)
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
            getattr(attn, name)[...] *= 0.2 if name != "b_O" else 0
        for head, query, key in ((0, 5, 0), (2, 4, 1)):
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
                getattr(attn, name)[head] = 0
            attn.W_Q[head, KINDS + query, 0] = 40.0
            attn.W_K[head, KINDS + key, 0] = 1.0
            attn.W_V[head, :KINDS] = torch.eye(KINDS)
            attn.W_O[head, :, :KINDS] = torch.eye(KINDS)
        attn.W_O[1, :, :-1] = 0
        attn.W_O[3] = attn.W_V[3] = attn.b_V[3] = 0
    return model


def sample(n: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(KINDS, (n, LENGTH), generator=generator)


def metric(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """How likely the right tokens are, in nats."""
    found = logits.log_softmax(-1)
    return (found[:, 5].gather(-1, tokens[:, :1]) + found[:, 4].gather(-1, tokens[:, 1:2]))[
        :, 0
    ] / 2


def metric_of_one(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Only the token that head 0 copies."""
    return logits.log_softmax(-1)[:, 5].gather(-1, tokens[:, :1])[:, 0]
