"""What a two-layer RNN is made of: its configuration and the shapes of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import torch
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import not_finite
from tl_dyck.kit.configuration import Configuration, choice, number, whole
from tl_dyck.kit.errors import DyckError
from tl_dyck.language import DyckLanguage
from tl_dyck.language.alphabet import Symbols
from tl_dyck.language.checks import DyckStringError
from tl_dyck.reading.activations import ACTIVATIONS
from tl_dyck.reading.positions import POSITIONS

_STATES = ("none", "position", "depth", "position+depth")
_NORMS = ("ln", "lnpre")
_whole = partial(whole, most=2**31 - 1)
#: Fields that only some accounts of an RNN know, and what they are in a plain decoder.
_PLAIN = {
    "positions": "standard",
    "qk_norm": False,
    "score_cap": None,
    "gated": False,
    "logit_cap": None,
    "parallel": False,
}


class RNNConfigError(DyckError, ValueError):
    """A configuration that is no two-layer RNN; the message names the field and its value."""


class RNNInputError(DyckError, ValueError):
    """A string the machine cannot read; the message says which token or length, what is allowed."""


class RNNWeightError(DyckError, ValueError):
    """Weights that do not fit the configuration: wrong names, shapes, types, or not finite."""


@final
@dataclass(frozen=True, kw_only=True)
class RNNConfig(Configuration):
    """Everything about a `TwoLayerRNN` that is not a weight.

    Attributes:
        d_model: width of the residual stream.
        n_heads: attention heads, H.
        d_head: width of a head.
        d_vocab: number of input tokens.
        d_vocab_out: number of logits (the vocabulary, or the classes of a classifier).
        predicts: of so many of the first logits, logit i is of token i; what the others stand for
            is not known. 0 if they are classes; None for all, where there are as many logits as
            tokens, and where not, if nobody says.
        n_ctx: longest string the exported model accepts, BOS included.
        state: what layer 1's state machine carries. "none": nothing (the state is always 0).
            "position": the index of the token just read. "depth": #opens - #closes after it,
            unclamped. "position+depth": both, in one integer.
        d_mlp: hidden width of the MLP; None if there is none.
        act_fn: activation of the MLP, one of `tl_dyck.reading.activations.ACTIVATIONS`; None
            exactly if there is no MLP.
        ln1: norm before the attention. "ln" has a scale and a bias, "lnpre" has neither.
        ln_c: the constant C of Eq. 6's LN_C(x) = P x / max(|P x|, C), applied to the attention's
            output before the residual is added (P subtracts the mean); None if there is no such
            norm.
        ln_mid: the constant C of Eq. 49's LN_C, applied to the sum of residual stream and attention
            output; None if there is no such norm.
        ln2: norm before the MLP.
        ln_final: norm before the unembedding.
        residual: whether the attention's output is added to the residual stream or replaces it
            ("bare" blocks).
        attn_scale: scores are divided by it.
        eps: epsilon of ln1, ln2 and ln_final.
        n_types: bracket types, for a depth counter (type t opens as 2t, closes as 2t+1; other
            tokens are neutral).
        max_depth: D, for a depth counter.
        bos_token: the token every string starts with; None if strings start bare.
        alphabet: the text of each token; None if unknown.
        separator: what stands between two tokens in a text: "" (characters) or " " (words); None if
            texts cannot be tokenised with the alphabet alone.
        unknown_token: token for a word outside the alphabet; None if that is an error.
        model_name: name of the model it was exported from.
        positions: what positions do, if the state counts them: see `tl_dyck.reading.positions`.
        qk_norm: whether each head's queries and keys are divided by their root mean square, and
            scaled.
        score_cap: scores become score_cap tanh(score / score_cap); None if they are not capped.
        gated: whether the MLP is act(x W_gate + b_gate) * (x W_in + b_in) + b_post, elementwise,
            before W_out.
        logit_cap: the same as score_cap, of logits.
        parallel: whether the MLP reads the embedding, as attention does, and not the sum of both.
    """

    d_model: int = _whole()
    n_heads: int = _whole()
    d_head: int = _whole()
    d_vocab: int = _whole()
    d_vocab_out: int = _whole()
    n_ctx: int = _whole()
    state: str = choice("none", _STATES)
    d_mlp: int | None = _whole(None)
    act_fn: str | None = choice(None, tuple(ACTIVATIONS))
    ln1: str | None = choice(None, _NORMS)
    ln_c: float | None = number(None, above=True)
    ln_mid: float | None = number(None, above=True)
    ln2: str | None = choice(None, _NORMS)
    ln_final: str | None = choice(None, _NORMS)
    residual: bool = True
    attn_scale: float = number(1.0, above=True)
    eps: float = number(1e-5)
    n_types: int | None = _whole(None)
    max_depth: int | None = _whole(None)
    bos_token: int | None = _whole(None, least=0)
    alphabet: tuple[str, ...] | None = None
    separator: str | None = choice(None, ("", " "))
    unknown_token: int | None = _whole(None, least=0)
    predicts: int | None = _whole(None, least=0)
    model_name: str = "custom"
    positions: str = choice("standard", tuple(POSITIONS))
    qk_norm: bool = False
    score_cap: float | None = number(None, above=True)
    gated: bool = False
    logit_cap: float | None = number(None, above=True)
    parallel: bool = False

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
            _check(self)
        except (TypeError, ValueError) as error:
            raise RNNConfigError(f"{error}") from None

    @property
    def mlp(self) -> bool:
        """Whether there is an MLP."""
        return self.d_mlp is not None

    @property
    def has_position(self) -> bool:
        """Whether an embedding, a query or a key depends on the token's position."""
        return self.state in ("position", "position+depth")

    @property
    def beyond(self) -> dict[str, Any]:
        """What it has beyond a plain decoder, by field: who does not know these refuses them."""
        return {
            name: getattr(self, name)
            for name, plain in _PLAIN.items()
            if getattr(self, name) != plain
        }

    @property
    def has_depth(self) -> bool:
        """Whether an embedding depends on the depth."""
        return self.state in ("depth", "position+depth")

    @property
    def language(self) -> DyckLanguage | None:
        """The bracket language whose depth is counted; None where none is."""
        if self.n_types is None or self.max_depth is None:
            return None
        brackets = self.alphabet and self.alphabet[: 2 * self.n_types]
        return DyckLanguage(self.n_types, self.max_depth, brackets)

    @cached_property
    def symbols(self) -> Symbols:
        """How its tokens are written: by the alphabet, or as numbers if it has none."""
        if self.alphabet is None:
            return Symbols(silent=self.bos_token)
        between, named = self.separator or "", self.named_logits
        return Symbols(self.alphabet, between, self.bos_token, named, self.unknown_token)

    @property
    def named_logits(self) -> int:
        """Of so many of the first logits it is known that logit i is of token i."""
        alike = self.d_vocab if self.d_vocab == self.d_vocab_out else 0
        return alike if self.predicts is None else self.predicts

    @checked
    def read(self, text: str, *, prepend_bos: bool = True) -> list[int]:
        """Tokens of a text (`Symbols.read`), with BOS in front if the model's strings start so.

        Raises:
            DyckStringError: there is no alphabet or no separator, or some part of it is no symbol.
        """
        if self.separator is None:
            raise DyckStringError(
                "this RNN cannot read texts, for it has no alphabet or no separator; give it "
                "tokens, or export it with alphabet=… and separator='' (characters) or ' ' (words)."
            )
        ids = self.symbols.read(text)
        if prepend_bos and self.bos_token is not None and ids[:1] != [self.bos_token]:
            ids.insert(0, self.bos_token)
        return ids

    @classmethod
    @checked
    def from_dict(cls, values: Any, called: str = "") -> RNNConfig:
        """Inverse of `to_dict`; trusts nothing.

        Raises:
            RNNConfigError: an unknown, missing or ill-typed field, or an impossible combination.
        """
        try:
            return super().from_dict(values, called)
        except (TypeError, ValueError) as error:  # TypeError: a field is missing
            raise RNNConfigError(f"{error}") from None


@checked
def weight_shapes(config: RNNConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight of the machine; names are TransformerLens's where it has them.

    `W_E` is [d_vocab, d_model], or [d_vocab, max_depth + 1, d_model] for an embedding of (token,
    depth); `W_pos` is [n_ctx, d_model], `rotary_cos` and `rotary_sin` are [n_ctx, d_head], for
    neighbouring pairs, the sine negative for the first of each; `W_near` is [n_ctx, n_heads], by
    distance. Nothing else than these names, in these shapes, makes a machine.
    """
    c = config
    heads, into = (c.n_heads, c.d_head), (c.n_heads, c.d_model, c.d_head)
    depths = (c.max_depth + 1,) if c.max_depth is not None else ()
    shapes: dict[str, tuple[int, ...]] = {"W_E": (c.d_vocab, *depths, c.d_model)}
    if c.has_position:
        sizes = POSITIONS[c.positions].weights.items()
        shapes |= {name: tuple(getattr(c, size) for size in axes) for name, axes in sizes}
    shapes |= {"W_Q": into, "W_K": into, "W_V": into, "b_Q": heads, "b_K": heads, "b_V": heads}
    shapes |= {"W_O": (c.n_heads, c.d_head, c.d_model), "b_O": (c.d_model,)}
    if c.d_mlp is not None:
        shapes |= {"W_in": (c.d_model, c.d_mlp), "b_in": (c.d_mlp,)}
        shapes |= {"W_out": (c.d_mlp, c.d_model), "b_out": (c.d_model,)}
    if c.d_mlp is not None and c.gated:
        shapes |= {"W_gate": (c.d_model, c.d_mlp), "b_gate": (c.d_mlp,), "b_post": (c.d_mlp,)}
    if c.qk_norm:
        shapes |= {"q_norm_w": (c.d_head,), "k_norm_w": (c.d_head,)}
    for norm in ("ln1", "ln2", "ln_final"):
        if getattr(c, norm) == "ln":
            shapes |= {f"{norm}_w": (c.d_model,), f"{norm}_b": (c.d_model,)}
    return shapes | {"W_U": (c.d_model, c.d_vocab_out), "b_U": (c.d_vocab_out,)}


def check_weights(config: RNNConfig, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that `weight_shapes` does not name so, or not finite, or of mixed types."""
    shapes = weight_shapes(config)
    missing, unknown = (
        sorted(shapes.keys() - weights.keys()),
        sorted(weights.keys() - shapes.keys()),
    )
    if missing or unknown:
        raise RNNWeightError(
            f"weights do not fit the configuration: missing {missing}, unknown {unknown}."
        )
    for name, shape in shapes.items():
        weight = weights[name]
        if tuple(weight.shape) != shape:
            raise RNNWeightError(
                f"weight {name} has shape {tuple(weight.shape)}, expected {shape}."
            )
        if weight.dtype not in (torch.float32, torch.float64):
            raise RNNWeightError(
                f"weight {name} is {weight.dtype}, "
                "but only float32 and float64 are supported; convert the model first."
            )
    wrong = not_finite({name: weights[name] for name in shapes})
    if wrong is not None:
        raise RNNWeightError(f"{wrong}.")
    dtypes = {weights[name].dtype for name in shapes}
    if len(dtypes) > 1:
        raise RNNWeightError(
            f"weights of mixed types {sorted(map(str, dtypes))}; convert them to one."
        )


def _check(c: RNNConfig) -> None:
    """Raise ValueError unless the fields, each of which is as it should be, go together."""
    if c.positions != "standard" and not c.has_position:
        raise ValueError(f"positions={c.positions!r}, but state={c.state!r} counts none.")
    if c.gated and c.d_mlp is None:
        raise ValueError("gated=True, but there is no MLP: d_mlp is None.")
    if c.parallel and (c.d_mlp is None or c.ln_mid is not None or not c.residual):
        raise ValueError("parallel=True, but there is no MLP beside the attention.")
    if type(c.model_name) is not str:
        raise ValueError(f"model_name must be a string, not {c.model_name!r}.")
    if type(c.residual) is not bool:
        raise ValueError(f"residual must be true or false, not {c.residual!r}.")
    if (c.d_mlp is None) != (c.act_fn is None):
        raise ValueError(
            f"an MLP has both d_mlp and act_fn, not d_mlp={c.d_mlp!r}, act_fn={c.act_fn!r}."
        )
    if c.ln2 is not None and c.d_mlp is None:
        raise ValueError(f"ln2={c.ln2!r} precedes an MLP, but d_mlp is None.")
    if c.has_depth != (c.max_depth is not None) or c.has_depth != (c.n_types is not None):
        raise ValueError(
            f"a depth counter has n_types and max_depth, and nothing else has: state={c.state!r}, "
            f"n_types={c.n_types!r}, max_depth={c.max_depth!r}."
        )
    if c.n_types is not None and 2 * c.n_types > c.d_vocab:
        raise ValueError(
            f"n_types={c.n_types} needs at least {2 * c.n_types} tokens, d_vocab={c.d_vocab}."
        )
    if c.predicts is not None and c.predicts > min(c.d_vocab, c.d_vocab_out):
        raise ValueError(
            f"predicts={c.predicts} of d_vocab={c.d_vocab} tokens and d_vocab_out={c.d_vocab_out} "
            "logits."
        )
    for name in ("bos_token", "unknown_token"):
        token = getattr(c, name)
        if token is not None and token >= c.d_vocab:
            raise ValueError(f"{name}={token} is not a token: d_vocab={c.d_vocab}.")
    if c.alphabet is None:
        if c.separator is not None:
            raise ValueError(f"separator={c.separator!r} without an alphabet.")
        return
    if not isinstance(c.alphabet, tuple) or not all(type(text) is str for text in c.alphabet):
        raise ValueError("alphabet must be a tuple of strings.")
    if len(c.alphabet) != c.d_vocab:
        raise ValueError(f"alphabet has {len(c.alphabet)} texts for d_vocab={c.d_vocab} tokens.")
