"""One table of models, for every test that needs one: forward passes, exporter, ONNX, certifiers.

Each case builds a `HookedTransformer` whose every trained weight is random (biases and norms too,
so that none can be forgotten unnoticed); it is small, so that tests over the whole table stay
quick.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from tl_dyck.models import build_model, get_config, list_models
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.models.hooked.own import UnsupportedOptionError
from tl_dyck.reading.activations import ACTIVATIONS, canonical_activation

__all__ = [
    "CASES",
    "DEEP_CASES",
    "EXTREME",
    "PLAIN_CASES",
    "REGISTERED_CASES",
    "SATURATED_CASES",
    "UNWRITTEN",
    "Case",
    "case",
    "draw_normal",
    "hooked_config",
    "plain_model",
    "thinned",
]


#: A largest score that float32 knows to 1e-3 only.
EXTREME = 1e4

#: An activation that a model may have, and of which there is no record.
UNWRITTEN = next(
    name for name in SUPPORTED_ACTIVATIONS if canonical_activation(name) not in ACTIVATIONS
)


def thinned(cases: Iterable[Any], every: int = 2, first: int = 0) -> list[Any]:
    """Parameters of a test: one of so many cases, from the first on; the others are slow.

    For lists whose cases show the same, one after the other; a tuple is of several arguments.
    """
    return [
        case
        if i % every == first
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for i, case in enumerate(cases)
    ]


@dataclass(frozen=True)
class Case:
    """A model of the table.

    Attributes:
        name: unique, used as the test's id.
        make: (type, n_ctx) -> the model, before its scores are scaled.
        largest_score: attention scores are scaled so that the largest one on random strings has
            this size.
        is_ours: whether it is of a family of ours, not a plain HookedTransformer.
    """

    name: str
    make: Callable[[torch.dtype, int], HookedTransformer]
    largest_score: float | None = None
    is_ours: bool = False

    def build(self, dtype: torch.dtype = torch.float64, n_ctx: int = 32) -> HookedTransformer:
        """The model, for strings of up to `n_ctx` tokens."""
        model = self.make(dtype, n_ctx)
        if self.largest_score is not None:
            scale_scores(model, self.largest_score)
        return model

    def tokens(
        self, batch: int, length: int, d_vocab: int | None = None, seed: int = 0
    ) -> torch.Tensor:
        """Random strings over the model's vocabulary, Int[batch length]."""
        d_vocab = self.build(n_ctx=2).cfg.d_vocab if d_vocab is None else d_vocab
        return torch.randint(
            d_vocab, (batch, length), generator=torch.Generator().manual_seed(seed)
        )


def _generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def randomise(model: HookedTransformer, generator: torch.Generator, spread: float = 1.0) -> None:
    """Draw every trained weight: W_* of variance spread²/fan-in, biases of 0.3, norms around 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue  # a constant of the architecture (positions, uniform attention)
            kind = name.rpartition(".")[2]
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if kind == "w":
                draw = 1 + 0.3 * draw
            elif kind.startswith("b"):
                draw = 0.3 * draw
            elif kind not in ("W_E", "W_pos"):
                draw = draw * spread / parameter.shape[-2] ** 0.5
            parameter.copy_(draw)


def draw_normal(model: Any, seed: int, size: float) -> Any:
    """Draw every trained weight from a normal distribution of that size; what is frozen stays."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(draw * size)
    return model


def scale_scores(model: HookedTransformer, largest: float) -> None:
    """Scale W_Q and b_Q: the largest |attention score| on random strings becomes `largest`."""
    shape = (8, min(model.cfg.n_ctx, 32))
    tokens = torch.randint(model.cfg.d_vocab, shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names_filter="blocks.0.attn.hook_attn_scores")
        scores = cache["blocks.0.attn.hook_attn_scores"]
        factor = largest / scores[scores.isfinite()].abs().max()
        model.blocks[0].attn.W_Q.mul_(factor)
        model.blocks[0].attn.b_Q.mul_(factor)


def hooked_config(**fields: Any) -> HookedTransformerConfig:
    """A configuration; skips the test where the installed TransformerLens has no such option."""
    unknown = set(fields) - {field.name for field in dataclasses.fields(HookedTransformerConfig)}
    if unknown:
        pytest.skip(f"this release of TransformerLens has no {', '.join(unknown)}")
    try:
        return HookedTransformerConfig(**fields)
    except UnsupportedOptionError as error:
        pytest.skip(str(error))


def plain_model(
    name: str, dtype: torch.dtype, n_ctx: int, *, position: str = "learned", **fields: Any
) -> HookedTransformer:
    """A plain one-layer HookedTransformer; its random weights depend on name and fields only."""
    values: dict[str, Any] = {
        "n_layers": 1,
        "d_model": 16,
        "d_head": 8,
        "n_heads": 2,
        "d_mlp": 24,
        "d_vocab": 11,
        "act_fn": "relu",
        "normalization_type": None,
        "attn_only": False,
    }
    cfg = HookedTransformerConfig(
        **{**values, **fields}, n_ctx=n_ctx, dtype=dtype, init_weights=False, device="cpu"
    )
    model = HookedTransformer(cfg, move_to_device=False)
    randomise(model, _generator(name))
    with torch.no_grad():
        if position == "none":
            model.pos_embed.W_pos.zero_()
        elif position == "linear":
            model.pos_embed.W_pos.zero_()
            model.pos_embed.W_pos[:, -1] = torch.arange(n_ctx) / 28
    return model


def _plain(name: str, largest_score: float | None = None, **fields: Any) -> Case:
    return Case(name, lambda dtype, n_ctx: plain_model(name, dtype, n_ctx, **fields), largest_score)


def _registered(
    family: str, name: str | None = None, largest_score: float | None = None, **overrides: Any
) -> Case:
    name = name or family

    def make(dtype: torch.dtype, n_ctx: int) -> HookedTransformer:
        options = {"n_layers": 1, "n_ctx": n_ctx, "dtype": dtype, **overrides}
        config = get_config(family, "dyck-2-4", **options)
        model = build_model(config)
        randomise(model, _generator(name))
        return model

    return Case(name, make, largest_score, is_ours=True)


REGISTERED_CASES = [
    *map(_registered, list_models()),
    _registered("gpt", "gpt-4heads-gelu", n_heads=4, d_head=8, act_fn="gelu"),
    _registered(
        "minimal-onehot", "minimal-onehot-linear-2heads", position="linear", n_heads=2, d_head=8
    ),
    # C above the norm of the attention's output: LN_C divides by the constant
    _registered("minimal-split", "minimal-split-large-c", ln_c=50.0),
]

PLAIN_CASES = [
    _plain("linear-readout", attn_only=True, n_heads=1, position="none"),
    _plain("attn-only-positions", attn_only=True),
    _plain("attn-only-ln", attn_only=True, normalization_type="LN"),
    _plain(
        "attn-only-lnpre-classifier",
        attn_only=True,
        normalization_type="LNPre",
        d_vocab_out=2,
        n_heads=1,
    ),
    _plain("relu", position="none"),
    _plain("relu-classifier", d_vocab_out=3, position="linear"),
    _plain("relu-ln-4heads", normalization_type="LN", n_heads=4, d_head=4),
    _plain("gelu-ln", normalization_type="LN", act_fn="gelu"),
    _plain(
        "gelu-new-lnpre-3heads", normalization_type="LNPre", act_fn="gelu_new", n_heads=3, d_head=5
    ),
    _plain(
        "gelu-tanh-no-positions",
        normalization_type="LN",
        act_fn="gelu_pytorch_tanh",
        position="none",
    ),
    _plain("silu-ln-classifier", normalization_type="LN", act_fn="silu", d_vocab_out=2),
    _plain("no-scale", use_attn_scale=False, position="none"),
    _plain("own-scale", attn_scale=3.7, normalization_type="LNPre"),
    _plain("embedding-ln", post_embedding_ln=True, normalization_type="LN"),
    _plain("one-token", d_vocab=1, d_vocab_out=2, d_model=3, d_head=1, n_heads=1, d_mlp=2),
]

SATURATED_CASES = [
    _plain("scores-100", 100.0, normalization_type="LN"),
    _plain("scores-100-no-positions", 100.0, position="none", n_heads=4),
    _plain("scores-1e4", 1e4, normalization_type="LN"),
    _plain("scores-1e4-attn-only", 1e4, attn_only=True, position="none"),
    _registered("minimal-onehot", "minimal-onehot-scores-100", 100.0),
    _registered("figure2-yao", "figure2-yao-scores-1e4", 1e4),
]

CASES = [*REGISTERED_CASES, *PLAIN_CASES, *SATURATED_CASES]

#: What only forward passes take: several layers.
DEEP_CASES = [
    *(
        _registered(family, f"{family}-{n_layers}-layers", n_layers=n_layers, n_heads=2, d_head=7)
        for family, n_layers in (
            ("gpt", 2),
            ("gpt-linear", 3),
            ("gpt-uniform", 2),
            ("attn-only", 2),
            ("attn-only", 3),
            ("eq6", 2),
            ("eq49", 3),
            ("minimal-yao", 2),
            ("figure2-split", 2),
        )
    ),
    _registered(
        "gpt",
        "attn-only-no-norm-2-layers",
        n_layers=2,
        n_heads=2,
        attn_only=True,
        normalization_type=None,
        position="learned",
    ),
    _plain("plain-gelu-lnpre-2-layers", n_layers=2, normalization_type="LNPre", act_fn="gelu"),
    _plain("plain-attn-only-2-layers", n_layers=2, attn_only=True, n_heads=3, d_head=5),
]


def case(name: str) -> Case:
    """The case of that name."""
    (found,) = [entry for entry in (*CASES, *DEEP_CASES) if entry.name == name]
    return found
