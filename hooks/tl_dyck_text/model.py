"""One-layer classifiers of texts, `text-1l`: HookedTransformers that read out at a last token.

They are ordinary ones, and the token is their own.

A sentence is ``word … word <cls>``; the logits at ``<cls>`` are the classes'. No edit touches
``<cls>``, so the query of the readout depends on the sentence by its length at most (through
positions), not on its last word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsIndex, final

import torch

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_seed
from tl_dyck.kit.configuration import Configuration, choice, whole
from tl_dyck.kit.records import Shapes, read_weights, write_weights
from tl_dyck.language.alphabet import Symbols
from tl_dyck.models.embeddings import FIXED_POSITIONS
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.models.hooked.own import HookedTransformer
from tl_dyck.models.storage import check_finite, load_weights

UNKNOWN, CLS = "<unk>", "<cls>"
_FORMAT = "tl_dyck.text/1"


@final
@checked
@dataclass(frozen=True, kw_only=True)
class TextConfig(Configuration):
    """Configuration of a text classifier.

    Attributes:
        words: the vocabulary: "<unk>", "<cls>", then words.
        n_classes: number of logits.
        d_model: width.
        n_heads: attention heads, of width d_model / n_heads.
        d_mlp: hidden width of a ReLU MLP; 0 for none (attention only).
        position: one of `FIXED_POSITIONS`, of which "linear" is i / n_ctx in the last coordinate.
        normalization: "none", or "ln" for LayerNorms as in GPT.
        n_ctx: longest sentence, "<cls>" included.

    Raises:
        ValueError: an unknown choice or an impossible number.
    """

    words: tuple[str, ...]
    n_classes: int = whole(2, least=2)
    d_model: int = whole(32)
    n_heads: int = whole(1)
    d_mlp: int = whole(0, least=0)
    position: str = choice("none", tuple(FIXED_POSITIONS))
    normalization: str = choice("none", ("none", "ln"))
    n_ctx: int = whole(80, least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "words", tuple(self.words))
        texts = {word for word in self.words if isinstance(word, str)}
        if self.words[:2] != (UNKNOWN, CLS) or len(texts) < len(self.words):
            raise ValueError(
                f"words must be distinct texts and begin with {UNKNOWN!r}, {CLS!r}, not "
                f"{self.words[:3]}"
            )
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} must be a multiple of n_heads={self.n_heads}")

    @cached_property
    def symbols(self) -> Symbols:
        """How its tokens are written, and texts read: without "<cls>"."""
        return Symbols(self.words, " ", self.cls_token, unknown=self.unknown_token)

    @property
    def cls_token(self) -> int:
        """The token that ends every sentence."""
        return 1

    @property
    def unknown_token(self) -> int:
        """The token of words outside the vocabulary."""
        return 0

    @checked
    def encode(self, text: str) -> list[int]:
        """Tokens of a text, split at white space, with "<cls>" at the end."""
        return [*self.symbols.read(text), self.cls_token]


@final
class TextTransformer(HookedTransformer):
    """A HookedTransformer that classifies sentences; every hook point is TransformerLens' own.

    Attributes:
        text: its configuration, which knows the words:
            ``model(torch.tensor([model.text.encode("a fine film")]))``.
    """

    @checked
    def __init__(self, config: TextConfig, device: str = "cpu") -> None:
        super().__init__(_hooked_config(config, device))
        told: Any = self.cfg
        told.predicts = 0  # logits are of classes, even if there are as many as words
        self.text = config


@checked
def build_text_model(
    config: TextConfig, seed: SupportsIndex = 0, *, device: str = "cpu"
) -> TextTransformer:
    """Build a classifier with freshly drawn weights.

    They are normal, of standard deviation 0.8/√d_model; embeddings 0.1.
    """
    model = TextTransformer(config, device)
    generator = torch.Generator().manual_seed(check_seed(seed))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kind = name.rpartition(".")[2]
            if kind.startswith("W_"):
                scale = 0.1 if kind == "W_E" else 0.8 / math.sqrt(config.d_model)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            else:
                parameter.fill_(1.0 if kind == "w" else 0.0)
        table = FIXED_POSITIONS[config.position](config.n_ctx, config.d_model, config.n_ctx)
        model.pos_embed.W_pos.copy_(table).requires_grad_(False)
    return model


def _hooked_config(config: TextConfig, device: str) -> HookedTransformerConfig:
    return HookedTransformerConfig(
        n_layers=1,
        d_model=config.d_model,
        n_heads=config.n_heads,
        d_head=config.d_model // config.n_heads,
        n_ctx=config.n_ctx,
        d_vocab=len(config.words),
        d_vocab_out=config.n_classes,
        d_mlp=config.d_mlp or None,
        attn_only=config.d_mlp == 0,
        act_fn="relu",
        normalization_type="LN" if config.normalization == "ln" else None,
        default_prepend_bos=False,
        init_weights=False,
        device=device,
        model_name="text-1l",
    )


def save_text_model(model: TextTransformer, folder: str | Path) -> Path:
    """Save configuration, vocabulary and weights, atomically, never as pickle."""
    return write_weights(folder, _FORMAT, model.text.to_dict(), dict(model.named_parameters()))


def load_text_model(folder: str | Path, *, device: str = "cpu") -> TextTransformer:
    """Load what `save_text_model` saved.

    Raises:
        CorruptFileError: a file is missing, altered, or not a text classifier.
        NotFiniteError: a weight is NaN or infinite.
    """
    source = str(folder)
    _, config, weights = read_weights(folder, (_FORMAT,), "a text classifier", _shapes)
    model = build_text_model(TextConfig.from_dict(config), device=device)
    load_weights(model, weights, source)
    check_finite(weights, source)
    return model


def _shapes(_: str, saved: dict[str, Any]) -> Shapes:
    config = TextConfig.from_dict(saved)
    yield "embed.W_E", [len(config.words), config.d_model]
    yield "pos_embed.W_pos", [config.n_ctx, config.d_model]
    yield "unembed.W_U", [config.d_model, config.n_classes]
    if config.d_mlp:
        yield "blocks.0.mlp.W_in", [config.d_model, config.d_mlp]
