"""From a one-layer causal HookedTransformer to a `TwoLayerRNN`.

Three stages: `refuse_unsupported` refuses, by name and reason, whatever has no two-layer RNN;
`_configuration` and `_weights` read off the rest; `_verify` runs model and RNN side by side on a
few random strings, so that a subclass which computes something else than its parts say is refused
too, not exported wrongly.

The model is read by attribute: this module does not import TransformerLens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError
from tl_dyck.language import DyckLanguage
from tl_dyck.language.checks import BOS_STRING, separator_of
from tl_dyck.language.vocabulary import Vocabulary, VocabularyError, agreed
from tl_dyck.reading.activations import canonical_activation
from tl_dyck.reading.inputs import hides_bos, looks_ahead
from tl_dyck.reading.norms import norm_of
from tl_dyck.reading.positions import POSITIONS
from tl_dyck.rnn.attention import attend_causal
from tl_dyck.rnn.bridged import is_bridge, read_bridge
from tl_dyck.rnn.config import RNNConfig, RNNWeightError, check_weights
from tl_dyck.rnn.machine import TwoLayerRNN
from tl_dyck.rnn.parts import doubled, mlp_weights, qk_norms, tables_of, uncentred
from tl_dyck.rnn.unsupported import (
    ExportMismatchError,
    UnsupportedModelError,
    ln_c_of,
    refuse_unsupported,
)


@checked
def export_rnn(
    model: nn.Module,
    *,
    vocabulary: Vocabulary | DyckLanguage | None = None,
    outputs: Sequence[SupportsIndex | None] | None = None,
    bos_token: int | None = None,
    alphabet: tuple[str, ...] | None = None,
    separator: str | None = None,
    unknown_token: int | None = None,
    verify: bool = True,
) -> TwoLayerRNN:
    """Export a one-layer causal model as the equivalent two-layer RNN (see `tl_dyck.rnn.machine`).

    Supported: every one-layer `DyckTransformer` (depth embeddings; GPT, Eq. 6, 49 and bare blocks;
        uniform attention), and a one-layer `HookedTransformer` with positions of any scheme in
        `tl_dyck.reading.positions` (a table of zeros counts as none), any norm of
        `tl_dyck.reading.norms`, attention-only or with an MLP of an activation in
        `tl_dyck.reading.activations`, gated or not, any number of heads with keys and values of
        their own or grouped, QK norms, caps, `d_vocab_out` classes, float32 or float64. RMSNorm is
        a LayerNorm of (x, -x): then the RNN's `d_model` is twice the model's.

    Args:
        model: the model, or a `TransformerBridge`; it is not changed.
        vocabulary: which of its ids is which symbol, of a model that nobody has adopted. The RNN's
            tokens are then those of the language, and what follows here is known. Or a
            language, if the model has a tokenizer that knows.
        outputs: with `vocabulary`, which id each logit is of; see `tl_dyck.adopt`.
        bos_token: the token every string starts with; by default the tokenizer's, if the model
            prepends it.
        alphabet: the text of each token; by default the tokenizer's, if the model has one.
        separator: "" if texts are characters, " " if they are words (see `RNNConfig`); known for
            Dyck models.
        unknown_token: the token for words outside the alphabet.
        verify: compare RNN and model on a few random strings.

    Returns:
        The RNN, on the model's device and in its floating-point type, with a copy of its weights.

    Raises:
        UnsupportedModelError: the model has no two-layer RNN; the message names the layer or field
            and why.
        ExportMismatchError: the model computes something else than its parts say, or infinity.
        VocabularyError: a vocabulary that the model cannot have, or outputs that are not said.
        TypeError: `vocabulary` and what it says already; or outputs without it.
    """
    if vocabulary is not None:
        _refuse_told(model, bos_token, alphabet, separator, unknown_token)
        said = agreed(vocabulary, getattr(model, "tokenizer", None))
        return _renumbered(export_rnn(model, verify=verify), said, outputs)
    if outputs is not None:
        raise WrongTypeError("outputs are of a vocabulary: give vocabulary=Vocabulary(…) too")
    if hides_bos(model):
        if bos_token is not None:
            raise UnsupportedModelError(f"{type(model).__name__} reads no BOS; leave bos_token out")
        alphabet = _text(model)["alphabet"] if alphabet is None else alphabet
        separator = separator_of(alphabet) if separator is None else separator
        model = model.plain()  # type: ignore[operator]
    read = read_bridge(model) if is_bridge(model) else model
    refuse_unsupported(read)
    text = _text(
        read,
        bos_token=bos_token,
        alphabet=alphabet,
        separator=separator,
        unknown_token=unknown_token,
    )
    with torch.no_grad():
        weights = _weights(read, 0)
        config = _configuration(read, 0, weights, text)
        if read is not model:
            _check_bridge(config, weights)
        rnn = TwoLayerRNN(config, weights)
        if verify:
            _verify(model, rnn, _OF_BRIDGES if read is not model else _TOLERANCE)
    return rnn


def _refuse_told(model: Any, *told: Any) -> None:
    """With a vocabulary nothing else says what tokens are."""
    known = getattr(model.cfg, "language", None) if hasattr(model, "cfg") else None
    if known is not None:
        raise VocabularyError(f"the token ids of this model are known: it reads {known}")
    if any(each is not None for each in told):
        raise WrongTypeError(
            "vocabulary says what tokens are; leave bos_token, alphabet, separator and "
            "unknown_token out"
        )


def _renumbered(rnn: TwoLayerRNN, vocabulary: Vocabulary, outputs: Any) -> TwoLayerRNN:
    """The RNN of the language's tokens: rows and columns change places, and nothing else."""
    config, weights = rnn.config, rnn.weights
    order, columns, predicts = vocabulary.orders(config.d_vocab, config.d_vocab_out, outputs)
    for name, axis, at in (("W_E", 0, order), ("W_U", 1, columns), ("b_U", 0, columns)):
        weights[name] = weights[name].index_select(axis, at.to(rnn.device))
    named = (*vocabulary.language.alphabet, *([] if vocabulary.bos is None else [BOS_STRING]))
    return TwoLayerRNN(
        replace(
            config,
            alphabet=(*named, *(f"<{token}>" for token in range(len(named), config.d_vocab))),
            separator=vocabulary.language.separator,
            bos_token=None if vocabulary.bos is None else vocabulary.language.bos_token,
            unknown_token=None,
            predicts=predicts,
        ),
        weights,
    )


def _check_bridge(config: RNNConfig, weights: dict[str, Tensor]) -> None:
    """Refuse a bridge whose weights are not those of its options, as a model's always are."""
    try:
        check_weights(config, weights)
    except RNNWeightError as error:
        raise UnsupportedModelError(
            f"TransformerBridge: {str(error).rstrip('.')}; no RNN is known of a model with that."
        ) from error


def export_last(model: nn.Module, *, bos_token: int | None) -> TwoLayerRNN:
    """The RNN of a one-layer model, which says at the last token what the model says there.

    Of a model that looks ahead, all keys stand before the last token, as if it were causal. Its RNN
    says nothing of other places; but attention of one layer adds up keys in whatever order, so that
    the RNN that reads another place last says what the model says there, if scores are of positions
    and not of distances.

    Raises:
        UnsupportedModelError: as `export_rnn`; or it looks ahead, and scores hang on distances.
    """
    if not looks_ahead(model) or is_bridge(model):
        return export_rnn(model, bos_token=bos_token)
    causal: Any = copy.deepcopy(model)
    causal.cfg.attention_dir = "causal"
    rnn = export_rnn(causal, bos_token=bos_token)
    if "W_near" in rnn.weights:
        raise UnsupportedModelError(
            f"pos_embed: {rnn.config.positions} positions add to scores by how far a key is behind "
            "the query, and this model looks ahead; run it, as a function of whole strings."
        )
    read = model.plain() if hides_bos(model) else model  # type: ignore[operator]
    with torch.no_grad():
        _verify(read, rnn, at=-1)
    return rnn


def export_layers(model: nn.Module) -> tuple[TwoLayerRNN, TwoLayerRNN]:
    """Export the layers of a two-layer model without positions, each as an RNN.

    The first reads tokens, and its logits are the residual stream behind the layer (its unembedding
    is the identity). The second's logits are the model's; it reads that residual stream in place of
    an embedding, so that its own is 0. Otherwise as `export_rnn`.
    """
    if hides_bos(model):
        model = model.plain()  # type: ignore[operator]
    refuse_unsupported(model, n_layers=2)
    text = _text(model)
    with torch.no_grad():
        layers = []
        for index in (0, 1):
            weights = _weights(model, index)
            if "W_pos" in weights:
                raise UnsupportedModelError(
                    "pos_embed: the model has positions, so that what its first layer hands on "
                    "does not follow from how often each symbol occurs."
                )
            layers.append(TwoLayerRNN(_configuration(model, index, weights, text), weights))
        first, second = layers

        def both(tokens: Tensor) -> Tensor:
            r = first(tokens)
            z = attend_causal(second.query(r), second.key(r), second.value(r))
            return second.readout(r, z)

        _verify(model, both)
    return first, second


def _configuration(
    model: Any, index: int, weights: dict[str, Tensor], text: dict[str, Any]
) -> RNNConfig:
    cfg, block = model.cfg, model.blocks[index]
    # [token, depth, d_model]: an embedding that knows the depth
    has_mlp, has_depth = hasattr(block, "mlp"), weights["W_E"].ndim == 3
    scheme = cfg.positional_embedding_type
    if not POSITIONS[scheme].weights.keys() <= weights.keys():
        scheme = None  # a table of zeros
    return RNNConfig(
        model_name=str(getattr(cfg, "model_name", None) or "custom"),
        d_model=len(weights["W_U"]),
        n_heads=cfg.n_heads,
        d_head=cfg.d_head,
        d_vocab=cfg.d_vocab,
        d_vocab_out=weights["W_U"].shape[1],
        n_ctx=cfg.n_ctx,
        predicts=getattr(cfg, "predicts", None) if _is_last(model, index) else None,
        state="+".join(["position"] * (scheme is not None) + ["depth"] * has_depth) or "none",
        positions=scheme or "standard",
        n_types=model.embed.language.n_types if has_depth else None,
        max_depth=model.embed.language.max_depth if has_depth else None,
        d_mlp=cfg.d_mlp if has_mlp else None,
        act_fn=canonical_activation(cfg.act_fn) if has_mlp else None,
        ln1=_norm_kind(block, "ln1"),
        ln_c=ln_c_of(block),
        ln_mid=ln_c_of(block, "ln2"),
        ln2=_norm_kind(block, "ln2") if has_mlp else None,
        ln_final=_norm_kind(model, "ln_final") if _is_last(model, index) else None,
        residual=getattr(cfg, "block", None) != "bare",
        attn_scale=float(block.attn.attn_scale),
        eps=float(cfg.eps),
        qk_norm="q_norm_w" in weights,
        score_cap=_cap(cfg, "attn_scores_soft_cap"),
        gated="W_gate" in weights,
        parallel=has_mlp and bool(getattr(cfg, "parallel_attn_mlp", False)),
        logit_cap=_cap(cfg, "output_logits_soft_cap") if _is_last(model, index) else None,
        **text,
    )


def _is_last(model: Any, index: int) -> bool:
    return bool(index == len(model.blocks) - 1)


def _weights(model: Any, index: int) -> dict[str, Tensor]:
    block, embedding = model.blocks[index], _embedding(model)
    nothing = embedding.new_zeros(model.cfg.d_vocab, model.cfg.d_model)
    found = {"W_E": nothing if index else embedding}
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
        found[name] = getattr(block.attn, name)
    found |= qk_norms(block.attn)
    found |= tables_of(model, block.attn, found)
    if hasattr(block, "mlp"):
        found |= mlp_weights(block.mlp)
    owners = {"ln1": block, "ln2": block}
    if _is_last(model, index):
        owners["ln_final"] = model
        found |= {"W_U": model.unembed.W_U, "b_U": model.unembed.b_U}
    else:
        identity = torch.eye(model.cfg.d_model).to(embedding)
        found |= {"W_U": identity, "b_U": torch.zeros_like(identity[0])}
    for name, owner in owners.items():
        if _norm_kind(owner, name) == "ln":
            norm = getattr(owner, name)
            # RMSNorm has no shift
            found |= {f"{name}_w": norm.w, f"{name}_b": getattr(norm, "b", 0 * norm.w)}
    device = found["W_E"].device  # a model may be spread over several
    found = {name: weight.detach().to(device) for name, weight in found.items()}
    return doubled(found, model.cfg) if uncentred(model, block) else found


def _embedding(model: Any) -> Tensor:
    """[d_vocab, d_model], or [d_vocab, max_depth + 1, d_model] for one of (token, depth)."""
    embed = model.embed
    table: Tensor = embed.table if hasattr(embed, "table") else embed.W_E
    # it acts on each token alone, so it is part of the table
    if getattr(model.cfg, "post_embedding_ln", False):
        table = embed.ln(table[None])[0]
    return table


def _norm_kind(owner: Any, name: str) -> str | None:
    norm = getattr(owner, name, None)
    known = norm_of(norm)
    if known is None:
        return None
    return "ln" if known.scales else "lnpre"


def _cap(cfg: Any, name: str) -> float | None:
    cap = getattr(cfg, name, None)
    return float(cap) if cap is not None and cap > 0 else None


def _text(model: Any, **told: Any) -> dict[str, Any]:
    """The fields of `RNNConfig` about texts, from the tokenizer where the caller does not say."""
    cfg, tokenizer = model.cfg, getattr(model, "tokenizer", None)
    if tokenizer is None:
        return told
    if told.get("bos_token") is None and cfg.default_prepend_bos:
        told["bos_token"] = tokenizer.bos_token_id
    if told.get("alphabet") is None:
        texts = tokenizer.convert_ids_to_tokens(list(range(cfg.d_vocab)))
        # a vocabulary may be padded beyond the tokenizer's
        told["alphabet"] = tuple(
            f"<{token}>" if text is None else text for token, text in enumerate(texts)
        )
        if told.get("separator") is None and hasattr(cfg, "language"):
            told["separator"] = separator_of(told["alphabet"])
    return told


_COMPARED = 4, 12  # strings, tokens
_TOLERANCE = 1e-3  # of the largest logit
_OF_BRIDGES = 3e-5  # of which options are read that may mean something else, such as an eps


def _verify(
    model: Any,
    rnn: Callable[[Tensor], Tensor],
    tolerance: float = _TOLERANCE,
    at: int | slice = slice(None),
) -> None:
    """Compare logits on random strings, at all places or at one.

    The usual tolerance is that of a different *function* (a missing term changes logits by about
    their own size), not of rounding; the tests hold the exporter to 1e-5 in float32 and 1e-10 in
    float64.
    """
    generator = torch.Generator().manual_seed(0)
    strings, length = _COMPARED
    shape = (strings, min(length, model.cfg.n_ctx))
    weight = next(iter(model.parameters()))
    tokens = torch.randint(model.cfg.d_vocab, shape, generator=generator).to(weight.device)
    # The RNN reads strings, not padding; with padding on the left the model would take leading
    # tokens for padding.
    padded_left = getattr(getattr(model, "tokenizer", None), "padding_side", "right") == "left"
    masks = {"attention_mask": torch.ones_like(tokens)} if padded_left else {}
    try:
        expected = model(tokens, **masks).to(weight.device)
    except RuntimeError as failure:  # torch's, of operands that do not go together
        line = (str(failure).splitlines() or ["it fails"])[0]
        raise UnsupportedModelError(
            f"{type(model).__name__}: the model cannot be run ({line}); its weights are "
            f"{weight.dtype}, and cfg.dtype is {model.cfg.dtype}: use model.to({weight.dtype})."
        ) from failure
    off = (rnn(tokens) - expected)[:, at]
    error, scale = float(off.abs().max()), float(expected.abs().max())
    if not math.isfinite(error):
        raise ExportMismatchError(
            f"{type(model).__name__}: numbers overflow on random strings (largest logit "
            f"{scale:.3g}), so that nothing can be compared; use smaller weights, or "
            "model.to(torch.float64)."
        )
    if not error <= tolerance * scale + torch.finfo(weight.dtype).tiny:
        raise ExportMismatchError(
            f"{type(model).__name__} computes something else than its parts say: its logits differ "
            f"from the exported RNN's by up to {error:.3g} (largest logit {scale:.3g}) on random "
            "strings. Does it override a forward method, or replace a module? Of a bridge: has it "
            "hooks, or a part that its options do not name?"
        )
