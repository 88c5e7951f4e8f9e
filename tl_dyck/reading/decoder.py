"""What a plain decoder is: the one list of parts and options that other accounts of it compute.

Knows: classes by their name and options by their value, with the reason where there is one. Reads a
model by attribute only, so that it holds for TransformerLens' classes and for ours. Who computes
the same a second time compares numbers too, for no list is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from tl_dyck.reading.activations import ACTIVATIONS, canonical_activation
from tl_dyck.reading.norms import NORMS

_NORMS = ("Identity", *(each.kind for each in NORMS.values() if each.centres))
_RMS = tuple(each.kind for each in NORMS.values() if not each.centres)
#: Parts of a block, and the classes of which they may be; `UnitNorm` is LN_C.
_PARTS = {
    "attn": ("Attention",),
    "mlp": ("MLP",),
    "ln1": _NORMS,
    "ln1_post": ("Identity", "UnitNorm"),
    "ln2": (*_NORMS, "UnitNorm"),
    "ln2_post": ("Identity",),
}
#: What a decoder may be beyond a plain one, by names that accounts which know it give `departures`.
BEYOND = (
    *("rotary", "alibi", "shortformer", "grouped queries", "QK norms", "cap of scores"),
    *("gated MLP", "RMSNorm", "cap of logits", "parallel"),
)
_IN_SCORES = ("rotary", "alibi", "relative_positional_bias")
_QUERY = "a key's score then depends on the query's position"
#: Options of attention that must be off, or not there, as in early releases.
_OFF = {
    "use_qk_norm": "QK norms",
    "attn_scores_soft_cap": "cap of scores",
    **dict.fromkeys(("use_attention_sinks", "use_logn_attn", "clip_qkv", "load_in_4bit"), ""),
}


#: Of a model that reads no BOS, and is given one: see `tl_dyck.models.bare`.
HIDDEN_BOS = "a BOS that is hidden from it (Vocabulary(…, bos=None))"


class Departure(NamedTuple):
    """Where a model is no plain decoder, for example "blocks.0.attn", and in what."""

    where: str
    what: str


def odd_options(cfg: Any, kind: type, known: Collection[str]) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and default of the options of a kind that differ from it, but for `known`."""
    for field in fields(kind):
        value = getattr(cfg, field.name)
        if field.name not in known and not _is_at(value, field.default):
            yield field.name, value, field.default


def _is_at(value: Any, default: Any) -> bool:
    """Whether an option has its default; 0 is not False, and a tensor is no option's default."""
    if hasattr(value, "__array__") or isinstance(value, bool) is not isinstance(default, bool):
        return False
    return bool(value == default)


def odd_scores(cfg: Any) -> Iterator[str]:
    """What makes attention scores more than the products of a query and the keys up to it."""
    for _, what in _odd_scores(cfg):
        yield what


def _odd_scores(cfg: Any) -> Iterator[tuple[str, str]]:
    """Each with its name in `BEYOND`, or "" if it has none."""
    positions, direction = cfg.positional_embedding_type, getattr(cfg, "attention_dir", "causal")
    if direction != "causal":
        yield "", f"{direction} attention: a token reads those after it"
    if getattr(cfg, "hides_bos", False):
        yield "", HIDDEN_BOS
    if positions in _IN_SCORES:
        yield positions, f"{positions} positions: {_QUERY}"
    if getattr(cfg, "use_local_attn", False) and cfg.window_size < cfg.n_ctx:
        yield "", f"local attention (cfg.window_size={cfg.window_size}): {_QUERY}"
    groups = getattr(cfg, "n_key_value_heads", None)
    if groups not in (None, cfg.n_heads):
        yield "grouped queries", f"grouped-query attention (cfg.n_key_value_heads={groups})"
    for name, called in _OFF.items():
        value = getattr(cfg, name, None)
        if value not in (None, False, -1.0):
            yield called, f"cfg.{name}={value!r}"


def departures(model: Any, but: Collection[str] = ()) -> Iterator[Departure]:
    """Where a model is no plain decoder, and in what; nothing for one that is.

    Plain are embedded positions, causal attention of `odd_scores` free heads, an MLP after it
    without gate and of a known activation, and LayerNorms with or without scales, or none.

    Args:
        model: read by attribute.
        but: of `BEYOND`, what the caller computes as well.
    """
    cfg, parts = model.cfg, _parts(but)
    for index, block in enumerate(model.blocks):
        where = f"blocks.{index}"
        for called, what in _odd_scores(cfg):
            if called not in but:
                yield Departure(f"{where}.attn", what)
        turned = getattr(block.attn, "_attention_dir_override", None)
        normed = getattr(block.attn, "q_norm", None) is not None and "QK norms" not in but
        if turned not in (None, "causal") or normed:
            yield Departure(f"{where}.attn", "attention with norms or a direction of its own")
        if getattr(cfg, "parallel_attn_mlp", False) and "parallel" not in but:
            yield Departure(where, "attention and MLP in parallel (cfg.parallel_attn_mlp)")
        family = getattr(cfg, "original_architecture", None)
        if family in ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM"):
            yield Departure(where, f"norms after each part, or across heads (of {family})")
        yield from _odd_parts(where + ".", block, parts)
        if hasattr(block, "mlp") and canonical_activation(cfg.act_fn) not in ACTIVATIONS:
            known = f"cfg.act_fn={cfg.act_fn!r}, where {', '.join(ACTIVATIONS)} are known"
            yield Departure(f"{where}.mlp", known)
    if cfg.positional_embedding_type not in ("standard", *_IN_SCORES, *but):
        what = f"{cfg.positional_embedding_type} positions; only 'standard' ones are known"
        yield Departure("pos_embed", what)
    yield from _odd_parts("", model, {"ln_final": parts["ln1"]})
    cap = getattr(cfg, "output_logits_soft_cap", None)
    if cap is not None and cap > 0 and "cap of logits" not in but:
        yield Departure("unembed", f"cfg.output_logits_soft_cap={cap}")


def _parts(but: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Parts of a block and their classes, those of `but` among them."""
    more = {
        "attn": ("GroupedQueryAttention",) if "grouped queries" in but else (),
        "mlp": ("GatedMLP",) if "gated MLP" in but else (),
        **dict.fromkeys(("ln1", "ln2"), _RMS if "RMSNorm" in but else ()),
    }
    return {name: (*known, *more.get(name, ())) for name, known in _PARTS.items()}


def _odd_parts(where: str, owner: Any, parts: dict[str, tuple[str, ...]]) -> Iterator[Departure]:
    for name, known in parts.items():
        kind = type(getattr(owner, name, None)).__name__
        if kind not in (*known, "NoneType"):
            yield Departure(f"{where}{name}", f"class {kind}, where {' or '.join(known)} is known")


def hooked_at(model: Any) -> str | None:
    """The name of a module of the model that has a hook on what goes in or out, if one has."""
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            return name or "the model"
    return None
