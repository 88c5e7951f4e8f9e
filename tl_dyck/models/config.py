"""The configuration of a Dyck model: TransformerLens' own, with the few fields that it lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import brief, check_integer_fields, check_number, shown
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage, Language, SymbolLanguage
from tl_dyck.language.symbols import needs_stack
from tl_dyck.models.embeddings import DEPTH_EMBEDDINGS, FIXED_POSITIONS, depth_embedding_size
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.reading.activations import canonical_activation
from tl_dyck.reading.decoder import odd_options

_CHOICES = {
    "embedding": ("token", *DEPTH_EMBEDDINGS),
    "block": ("gpt", "eq6", "eq49", "bare"),
    "position": (*FIXED_POSITIONS, "learned"),
    "attention": ("softmax", "uniform"),
}

# What defines a model and therefore goes to disk. TransformerLens' other fields follow from these,
# choose what is recorded and not what is computed, or describe architectures that are not ours.
_SAVED = (
    "n_types",
    "max_depth",
    "brackets",
    "embedding",
    "block",
    "position",
    "attention",
    "t_max",
    "ln_c",
    "model_name",
    "n_layers",
    "n_heads",
    "d_model",
    "d_head",
    "d_mlp",
    "n_ctx",
    "act_fn",
    "eps",
    "initializer_range",
    "dtype",
    "default_prepend_bos",
)
# Likewise, but saved only where they are not as every earlier version had them.
_CHOSEN = {"mlp": True, "layer_norm": True, "symbols": None}
#: What chooses what is recorded, and where, and nothing that is computed.
RECORDING = (
    "device",
    "use_attn_result",
    "use_split_qkv_input",
    "use_attn_in",
    "use_hook_mlp_in",
    "use_hook_tokens",
)
_DERIVED = (
    "d_vocab",
    "d_vocab_out",
    "normalization_type",
    "use_normalization_before_and_after",
    "attn_only",
    "init_weights",
    "positional_embedding_type",
    "attn_scale",
    "n_params",
    "tokenizer_prepends_bos",
)

OPTIONS = (*_SAVED, *_CHOSEN, *RECORDING)

_LARGEST_TABLE = 2**27  # numbers of one array: half a gigabyte in float32
_MOST_LAYERS = 1000  # a slip is refused before all of them are made
_LEAST = dict.fromkeys(("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "t_max"), 1)
_LEAST["n_ctx"] = 2  # BOS and a bracket
DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}


@checked
@dataclass(kw_only=True)
class DyckTransformerConfig(HookedTransformerConfig):
    """A `HookedTransformerConfig` with the language and the choices of Wen et al. 2023.

    Everything that TransformerLens reads (`d_model`, `n_layers`, `n_heads`, `d_mlp`, `act_fn`,
    `n_ctx`, `dtype`, …) means what it means there; vocabulary, `attn_only` and normalisation follow
    from the fields below and must not be given.

    Attributes:
        n_types: number of bracket types k; 0 for a language without brackets.
        max_depth: largest depth D; likewise.
        symbols: of a language without brackets, a `SymbolLanguage`; None for bounded Dyck.
        d_head: size of a head; -1 for d_model // n_heads.
        brackets: the 2k bracket strings, or None for the default ones.
        embedding: "token" (a trained W_E), or a minimal first layer: "onehot" (Eq. 19), "split"
            (Eq. 20), "yao" (Eq. 21).
        block: "gpt" (pre-LN, as HookedTransformer has it), "eq6" (Eq. 6), "eq49" (Eq. 49, LayerNorm
            around the sum), "bare" (attention only, no residual).
        position: what W_pos holds: one of `tl_dyck.models.embeddings.FIXED_POSITIONS`, as "none"
            (zeros) or "linear" (i / t_max in the last coordinate), or "learned".
        attention: "softmax", or "uniform": query and key weights are zero and stay zero.
        t_max: T_max of position encodings, in tokens.
        ln_c: the constant C of LN_C (Eq. 7), for "eq6" and "eq49".
        mlp: whether "gpt" blocks have one; else the model is attention-only.
        layer_norm: whether "gpt" blocks have LayerNorms, and the unembedding.

    Raises:
        ValueError: an unknown choice, or a combination that makes no sense; the message says what
            to change.
    """

    n_types: int = 0
    max_depth: int = 0
    symbols: SymbolLanguage | None = None
    d_head: int = -1
    brackets: Sequence[str] | None = None
    embedding: str = "token"
    block: str = "gpt"
    position: str = "none"
    attention: str = "softmax"
    t_max: int = 28
    ln_c: float = 1e-5
    mlp: bool = True
    layer_norm: bool = True

    def __post_init__(self) -> None:
        if self.act_fn not in SUPPORTED_ACTIVATIONS:  # by another name, perhaps
            self.act_fn = canonical_activation(self.act_fn)
        for name, choices in {**_CHOICES, "act_fn": SUPPORTED_ACTIVATIONS}.items():
            if getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)
        self._refuse_foreign()
        self._check_numbers()
        if self.brackets is not None:
            self.brackets = tuple(self.brackets)
        self._check_symbols()
        language = self.language
        if self.embedding != "token" and self.d_model < depth_embedding_size(
            self.embedding, language
        ):
            raise ValueError(
                f"d_model={self.d_model} is too small: "
                f"the {self.embedding!r} embedding of Dyck({self.n_types},"
                f"{self.max_depth}) has {depth_embedding_size(self.embedding, language)} "
                "coordinates"
            )
        self._check_table(language)
        self.d_vocab = self.d_vocab_out = language.d_vocab
        self.normalization_type = "LN" if self.block == "gpt" and self.layer_norm else None
        self.use_normalization_before_and_after = self.block == "eq6"
        self.attn_only = self.block == "bare" or not self.mlp
        self.init_weights = False  # build_model does that, with a generator of its own
        self.positional_embedding_type = "standard"
        self.attn_scale = math.sqrt(self.d_head)
        super().__post_init__()

    def _refuse_foreign(self) -> None:
        if self.seed is not None:
            raise ValueError(
                "leave `seed` out of the config (TransformerLens would reseed the whole process); "
                "give it to build_model(config, seed=…)"
            )
        positions, norm = self.positional_embedding_type, self.normalization_type
        if positions != "standard" or norm not in ("LN", None):
            raise ValueError(
                f"positional_embedding_type={positions!r} and normalization_type={norm!r} do not "
                "go with a Dyck model, whose positions and norms follow from `position` and "
                "`block`: leave them out"
            )
        for name, value, default in odd_options(
            self, HookedTransformerConfig, (*OPTIONS, *_DERIVED)
        ):
            said = shown(value) if hasattr(value, "__array__") else brief(value)
            raise ValueError(
                f"{name}={said} is not supported in a Dyck model; leave it at {default!r}. "
                f"The options are {', '.join(OPTIONS)}"
            )

    def _check_symbols(self) -> None:
        if self.symbols is None:
            return
        if self.n_types or self.max_depth or self.brackets:
            raise ValueError(
                "give n_types and max_depth, for brackets, or symbols, for another language; "
                f"not n_types={self.n_types}, max_depth={self.max_depth} and {self.symbols!r}"
            )
        if self.embedding != "token":
            needs_stack(
                self.symbols, f"the embedding {self.embedding!r}, a minimal first layer, is"
            )

    def _check_table(self, language: Any) -> None:
        if self.embedding == "token":
            return
        numbers = language.d_vocab * (language.max_depth + 1) * self.d_model
        if numbers > _LARGEST_TABLE:
            raise ValueError(
                f"the table of a minimal first layer, of tokens, depths and d_model, would have "
                f"{numbers:,} numbers (at most {_LARGEST_TABLE:,}): choose a smaller max_depth"
            )

    def _check_numbers(self) -> None:
        for name, least in _LEAST.items():
            if name == "d_mlp" and self.d_mlp is None:
                continue  # TransformerLens makes it 4 d_model
            if name == "d_head" and self.d_head == -1:
                self.d_head = max(1, self.d_model // self.n_heads)
            check_integer_fields(self, **{name: least})
        width = max(self.n_ctx, self.d_mlp or 0, self.n_heads * self.d_head)
        if width * self.d_model > _LARGEST_TABLE or self.n_layers > _MOST_LAYERS:
            raise ValueError(
                f"n_ctx, d_mlp and n_heads * d_head, each times d_model, must be at most "
                f"{_LARGEST_TABLE:,}, and n_layers {_MOST_LAYERS:,}; got n_ctx={self.n_ctx}, "
                f"d_mlp={self.d_mlp}, n_heads={self.n_heads}, d_head={self.d_head}, "
                f"d_model={self.d_model}, n_layers={self.n_layers}"
            )
        for name in ("mlp", "layer_norm"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be true or false, not {getattr(self, name)!r}")
            if not getattr(self, name) and self.block != "gpt":
                raise ValueError(f"{name}=False goes with block 'gpt', not with {self.block!r}")
        for name in ("ln_c", "eps"):
            check_number(name, getattr(self, name), 0.0, above=True)
        check_number("initializer_range", self.initializer_range)  # negative: TransformerLens' own
        if self.dtype not in DTYPES.values():
            raise ValueError(
                f"dtype must be one of {', '.join(f'torch.{name}' for name in DTYPES)}, "
                f"not {self.dtype}"
            )

    @classmethod
    @checked
    def of_plain(cls, config: HookedTransformerConfig, language: Language) -> DyckTransformerConfig:
        """The same architecture, of TransformerLens' own configuration, for a language.

        Raises:
            ValueError: an option that no Dyck model has; the message names it.
        """
        if config.use_attn_scale is False or config.attn_scale != math.sqrt(config.d_head):
            raise ValueError(
                f"attn_scale={config.attn_scale} is not supported in a Dyck model, which divides "
                "scores by the root of d_head"
            )
        odd = odd_options(config, HookedTransformerConfig, _DERIVED)
        told = {name: value for name, value, _ in odd}
        for name in ("positional_embedding_type", "normalization_type"):
            told[name] = getattr(config, name)
        return cls(
            **cls.read(language),
            position="learned",
            mlp=not config.attn_only,
            layer_norm=config.normalization_type is not None,
            **told,
        )

    @staticmethod
    @checked
    def read(language: Language) -> dict[str, Any]:
        """The fields with which a model reads a language.

        Raises:
            TypeError: neither a `DyckLanguage` nor a `SymbolLanguage`.
        """
        if isinstance(language, DyckLanguage):
            names = ("n_types", "max_depth", "brackets")
            return {name: getattr(language, name) for name in names}
        if isinstance(language, SymbolLanguage):
            return {"symbols": language}
        raise TypeError(f"a model reads a DyckLanguage or a SymbolLanguage, not {language!r}")

    @property
    def language(self) -> Any:
        """The language whose strings the model reads: a `DyckLanguage`, or a `SymbolLanguage`."""
        return self.symbols or DyckLanguage(self.n_types, self.max_depth, self.brackets)

    def to_saved(self) -> dict[str, Any]:
        """Return everything that defines the model, as JSON values; `from_saved` is the inverse.

        The device is not part of it.
        """
        values = {name: getattr(self, name) for name in _SAVED}
        chosen = {name: getattr(self, name) for name in _CHOSEN}
        values |= {name: value for name, value in chosen.items() if value != _CHOSEN[name]}
        values["dtype"] = str(self.dtype).removeprefix("torch.")
        values["initializer_range"] = float(self.initializer_range)
        values["brackets"] = list(self.brackets) if self.brackets else None
        if self.symbols is not None:
            values["symbols"] = {**asdict(self.symbols), "symbols": list(self.symbols.symbols)}
        return values

    @classmethod
    @checked
    def from_saved(cls, values: dict[str, Any], device: str | None = None) -> DyckTransformerConfig:
        """Make the config that `to_saved` described.

        Raises:
            ValueError: keys are missing or unknown, or a value is not allowed.
        """
        if set(values) - set(_CHOSEN) != set(_SAVED):
            odd = sorted((set(values) - set(_CHOSEN)) ^ set(_SAVED))
            raise ValueError(
                f"not the config of a Dyck model: keys missing or unknown: {', '.join(odd)}"
            )
        if values["dtype"] not in DTYPES:
            raise unknown_name("dtype", values["dtype"], DTYPES)
        symbols = values.get("symbols")
        language = SymbolLanguage(**symbols) if isinstance(symbols, Mapping) else symbols
        read = {"symbols": language, "dtype": DTYPES[values["dtype"]], "device": device}
        return cls(**{**values, **read})
