"""The configuration of a Dyck model: TransformerLens' own, with the few fields that it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformer_lens import HookedTransformerConfig

from tl_dyck.language import DyckLanguage
from tl_dyck.models.embeddings import depth_embedding_size
from tl_dyck.registry import unknown_name

__all__ = ["DyckTransformerConfig"]

_CHOICES = {
    "embedding": ("token", "onehot", "split", "yao"),
    "block": ("gpt", "eq6", "bare"),
    "position": ("none", "linear", "learned", "sinusoidal"),
    "attention": ("softmax", "uniform"),
}

# What defines a model and therefore goes to disk. The other fields of HookedTransformerConfig follow from these,
# describe architectures that are not ours, or change between releases of TransformerLens.
_SAVED = (
    *("n_types", "max_depth", "brackets", "embedding", "block", "position", "attention", "t_max", "ln_c", "model_name"),
    *("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "n_ctx", "act_fn", "eps", "initializer_range", "dtype"),
)


@dataclass(kw_only=True)
class DyckTransformerConfig(HookedTransformerConfig):
    """A `HookedTransformerConfig` with the language and the choices of Wen et al. 2023.

    Everything that TransformerLens reads (`d_model`, `n_layers`, `n_heads`, `d_mlp`, `act_fn`, `n_ctx`, `dtype`, …)
    means what it means there; vocabulary and normalisation follow from the fields below and must not be given.

    Attributes:
        n_types: number of bracket types k.
        max_depth: largest depth D.
        brackets: the 2k bracket strings, or None for the default ones.
        embedding: "token" (a trained W_E), or a minimal first layer: "onehot" (Eq. 19), "split" (Eq. 20), "yao" (Eq.
            21).
        block: "gpt" (pre-LN, as HookedTransformer has it), "eq6" (Eq. 6), "bare" (attention only, no residual).
        position: what W_pos holds: "none" (zeros), "linear" (i / t_max in the last coordinate), "sinusoidal"; fixed, or
            "learned".
        attention: "softmax", or "uniform": query and key weights are zero and stay zero.
        t_max: T_max of the linear position encoding, in tokens.
        ln_c: the constant C of LN_C (Eq. 7), for "eq6".

    Raises:
        ValueError: an unknown choice, or a combination that makes no sense; the message says what to change.
    """

    n_types: int
    max_depth: int
    brackets: tuple[str, ...] | None = None
    embedding: str = "token"
    block: str = "gpt"
    position: str = "none"
    attention: str = "softmax"
    t_max: int = 28
    ln_c: float = 1e-5

    def __post_init__(self) -> None:
        for field, choices in _CHOICES.items():
            if getattr(self, field) not in choices:
                raise unknown_name(field, getattr(self, field), choices)
        if self.seed is not None:
            raise ValueError(
                "leave `seed` out of the config (TransformerLens would reseed the whole process); "
                "give it to build_model(config, seed=…)"
            )
        if isinstance(self.brackets, list):
            self.brackets = tuple(self.brackets)
        language = self.language
        if self.embedding != "token" and self.d_model < depth_embedding_size(self.embedding, language):
            raise ValueError(
                f"d_model={self.d_model} is too small: the {self.embedding!r} embedding of Dyck({self.n_types},"
                f"{self.max_depth}) has {depth_embedding_size(self.embedding, language)} coordinates"
            )
        for field, least in (("n_layers", 1), ("n_heads", 1), ("d_head", 1), ("n_ctx", 2), ("t_max", 1)):
            if getattr(self, field) < least:
                raise ValueError(f"{field} must be at least {least}, not {getattr(self, field)}")
        if self.ln_c <= 0:
            raise ValueError(f"ln_c must be positive, not {self.ln_c}")
        self.d_vocab = self.d_vocab_out = language.d_vocab
        self.normalization_type = "LN" if self.block == "gpt" else None
        self.use_normalization_before_and_after = self.block == "eq6"
        self.attn_only = self.block == "bare"
        self.init_weights = False  # build_model does that, with a generator of its own
        self.positional_embedding_type = "standard"
        super().__post_init__()

    @property
    def language(self) -> DyckLanguage:
        """The language whose strings the model reads."""
        return DyckLanguage(self.n_types, self.max_depth, self.brackets)

    def to_saved(self) -> dict[str, Any]:
        """What defines the model, as JSON values; `from_saved` is the inverse. The device is not part of it."""
        values = {name: getattr(self, name) for name in _SAVED}
        values["dtype"] = str(self.dtype).removeprefix("torch.")
        values["initializer_range"] = float(self.initializer_range)
        values["brackets"] = list(self.brackets) if self.brackets else None
        return values

    @classmethod
    def from_saved(cls, values: dict[str, Any], device: str | None = None) -> DyckTransformerConfig:
        """Make the config that `to_saved` described.

        Raises:
            ValueError: keys are missing or unknown, or a value is not allowed.
        """
        if set(values) != set(_SAVED):
            odd = sorted(set(values) ^ set(_SAVED))
            raise ValueError(f"not the config of a Dyck model: keys missing or unknown: {', '.join(odd)}")
        if values["dtype"] not in ("float32", "float64", "bfloat16", "float16"):
            raise ValueError(f"not the config of a Dyck model: dtype {values['dtype']!r}")
        return cls(**{**values, "dtype": getattr(torch, values["dtype"]), "device": device})
