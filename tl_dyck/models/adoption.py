"""Your own HookedTransformer, in the ids that everything here reads; how it is kept."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import (
    WrongTypeError,
    WrongValueError,
    check_integer,
    check_number,
    not_finite,
)
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage, SymbolLanguage, build_tokenizer
from tl_dyck.language.vocabulary import Vocabulary, VocabularyError, agreed
from tl_dyck.models.bare import BareTransformer, with_bos
from tl_dyck.models.config import DTYPES, RECORDING, DyckTransformerConfig
from tl_dyck.models.foreign import NotCarriedError, as_hooked, can_be_hooked, same_logits
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.models.state_dicts import SIZES, option_shapes
from tl_dyck.reading.decoder import departures, hooked_at, odd_options
from tl_dyck.reading.inputs import check_placed, unwrapped, warn_of_first


@checked
def adopt(
    model: nn.Module | Mapping[str, Tensor] | str | Path,
    vocabulary: Vocabulary | DyckLanguage,
    *,
    outputs: Sequence[SupportsIndex | None] | None = None,
    config: HookedTransformerConfig | Mapping[str, Any] | None = None,
) -> Any:
    """A model of your own, renumbered: its token ids are those of the language, brackets first.

    Rows of ``W_E`` and columns of ``W_U`` change places, and nothing else: logits of a token are
    the same numbers. Tokens that are no brackets stay, behind BOS, so they still compete. The
    result reads text, knows its language (``cfg.language``), and goes wherever a model of ours
    goes: metrics, probes, head importance, widgets, RNN export, certificates.

    Examples:
        >>> from tl_dyck.models.hooked import HookedTransformerConfig
        >>> cfg = HookedTransformerConfig(
        ...     n_layers=2, d_model=16, n_ctx=32, d_head=8, d_vocab=6, attn_only=True,
        ...     init_weights=False,
        ... )
        >>> model = HookedTransformer(cfg)
        >>> _ = [weight.data.zero_() for weight in model.parameters()]
        >>> ids = Vocabulary(DyckLanguage(2, 4), {"(": 2, ")": 3, "[": 4, "]": 5}, bos=1, padding=0)
        >>> adopt(model, ids).to_tokens("[()]").tolist()
        [[4, 0, 2, 3, 1]]

    Args:
        model: a HookedTransformer, which is copied with its hooks and not changed; or whatever
            `as_hooked` makes one of: a `TransformerBridge`, a GPT-2 of `transformers` or a folder
            of one, a state dict with `config`.
        vocabulary: which id is which bracket; or a language, if the model has a tokenizer that
            knows.
        outputs: which of the model's ids each of its logits is of, in their order; None for a logit
            that is of none, a dead one, which can win but is never right. Of each bracket there
            must be one. ``()`` if logits are no tokens but classes, which keep their order. Not
            needed of a model with as many logits as ids, logit i of id i, or with fewer than there
            are brackets, which can only be classes.
        config: of a state dict, what it is of; see `as_hooked`.

    Returns:
        A HookedTransformer of the same class; `vocabulary` is an attribute of it, so `save_model`
        and `load_model` keep it. Of a model that reads no BOS (``Vocabulary(…, bos=None)``), one
        that takes strings with BOS first, which is hidden from it: its logits there are NaN, and
        nothing is asked of it before the first symbol.

    Raises:
        TypeError: no model of these kinds, or no vocabulary.
        NotCarriedError: a model of others with a part that no HookedTransformer has; a hook, of a
            model without BOS.
        CorruptFileError: a folder or file that does not hold what it should.
        VocabularyError: a vocabulary that the model cannot have: too few ids, a tokenizer that
            says otherwise, or a model whose ids are known; or outputs that are not said, or cannot
            be.
        ValueError: weights that are NaN or infinite.

    Warns:
        VocabularyWarning: of bounded Dyck languages, if after BOS the model clearly prefers some
            closing bracket to some opening one, as one does whose ids are named wrongly
            (`tl_dyck.reading.inputs.warn_of_first`). No warning is no proof that they are right.
    """
    theirs = _hooked(model, config)
    known = getattr(theirs.cfg, "language", None)
    if known is not None:
        raise VocabularyError(f"the token ids of this model are known: it reads {known}")
    check_placed(theirs)
    wrong = not_finite(dict(theirs.named_parameters()))
    if wrong is not None:
        raise WrongValueError(f"this model computes nothing: {wrong}")
    vocabulary = agreed(vocabulary, getattr(theirs, "tokenizer", None))
    order, columns, predicts = vocabulary.orders(
        theirs.cfg.d_vocab, theirs.cfg.d_vocab_out, outputs
    )
    adopted: Any
    if vocabulary.bos is None:
        adopted = _bare(theirs)
        n_symbols = vocabulary.language.bos_token  # BOS is the last token of `with_bos`
        order = torch.cat([order[:n_symbols], order.new_tensor([len(order)]), order[n_symbols:]])
    else:
        adopted = copy.deepcopy(theirs, {id(theirs.tokenizer): None}).eval()
    with torch.no_grad():
        _renumber(adopted.embed.W_E, 0, order)
        _renumber(adopted.unembed.W_U, 1, columns)
        _renumber(adopted.unembed.b_U, 0, columns)
    _read(adopted, vocabulary, predicts)
    language = vocabulary.language
    if isinstance(language, DyckLanguage):  # of others only a task knows what may come first
        may_come = torch.arange(language.bos_token) % 2 == 0
        warn_of_first(adopted, language, may_come)
    return adopted


def _bare(model: Any) -> Any:
    """With a BOS that is hidden from it."""
    hooked = hooked_at(model)
    if hooked is not None:
        raise NotCarriedError(
            f"a hook at {hooked} may change what this model computes, and hooks of a model without "
            "BOS stay behind; model.reset_hooks(including_permanent=True) removes it"
        )
    for where, what in departures(model):
        if not what.startswith("bidirectional"):
            raise NotCarriedError(
                f"a model without BOS comes in if it is a plain decoder; {where}: {what}"
            )
    return same_logits(with_bos(model), model, model, first=model.cfg.d_vocab)


def _hooked(model: Any, config: Any) -> Any:
    """The model as a HookedTransformer; of another, what can be done instead is said."""
    inside = unwrapped(model)
    instead = (
        "of another model, measure what it does: task.closing_accuracy(lambda tokens: "
        f"model(vocabulary.to_model(tokens)){_logits_of(inside)}[..., vocabulary.ids])"
    )
    if not can_be_hooked(inside):
        raise WrongTypeError(
            "adopt takes a HookedTransformer, a TransformerBridge, a GPT-2 or a folder of one, not "
            f"{type(inside).__name__}; {instead}"
        )
    try:
        return as_hooked(model, config=config)
    except NotCarriedError as error:
        if _is_one_layer(inside):
            instead = (
                "of one layer, export_rnn(model, vocabulary=Vocabulary(…)) may read it, for "
                f"certificates, proofs and accuracies; {instead}"
            )
        raise NotCarriedError(f"{error}; {instead}") from error


def _is_one_layer(model: Any) -> bool:
    """Of a bridge; what else cannot be carried, `export_rnn` does not read either."""
    return hasattr(model, "blocks") and getattr(getattr(model, "cfg", None), "n_layers", 0) == 1


def _logits_of(model: Any) -> str:
    """Where the logits are in what a model returns: of `transformers` it is no tensor."""
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return ".logits" if "transformers" in packages else ""


def _read(model: Any, vocabulary: Vocabulary, predicts: int) -> None:
    """Have a model whose ids are ours read a language."""
    model.cfg.language = model.language = vocabulary.language
    model.cfg.predicts = predicts
    model.vocabulary = vocabulary
    model.cfg.default_prepend_bos = True
    model.set_tokenizer(build_tokenizer(vocabulary.language))


def _renumber(weight: Tensor, axis: int, order: Tensor) -> None:
    weight.copy_(weight.index_select(axis, order.to(weight.device)))


# --- on disk --------------------------------------------------------------------------------------

# The options that decide what a plain decoder computes, and can be had again from JSON. Others must
# be as TransformerLens has them by default, or only choose what is recorded.
_WHAT = ("options", "language", "vocabulary")
_KEPT = (
    *SIZES,
    "act_fn",
    "attention_dir",
    "attn_only",
    "attn_scale",
    "dtype",
    "eps",
    "initializer_range",
    "model_name",
    "normalization_type",
    "positional_embedding_type",
    "post_embedding_ln",
    "use_attn_scale",
)
_ROTARY = ("rotary_adjacent_pairs", "rotary_base", "rotary_dim")  # of such positions only
_LEFT = (
    *RECORDING,
    "default_prepend_bos",
    "init_mode",
    "init_weights",
    "n_params",
    "seed",
    "tokenizer_name",
    "tokenizer_prepends_bos",
)
_CHOICES: dict[str, Sequence[str | None]] = {
    "act_fn": (*SUPPORTED_ACTIVATIONS, None),
    "attention_dir": ("causal", "bidirectional"),
    "dtype": tuple(DTYPES),
    "normalization_type": ("LN", "LNPre", None),
    "positional_embedding_type": ("standard", "rotary", "shortformer"),
}
_UNSAVED = (
    "a model with {} cannot be saved, only plain decoders; keep its state dict, and adopt it again"
)
_LONGEST_ROTARY = 8192  # TransformerLens makes a mask of n_ctx² for each layer, whatever is read


def to_saved(model: Any) -> dict[str, Any]:
    """Options, language and vocabulary of an adopted model, as JSON values.

    A ValueError names an option that cannot be saved.
    """
    kept = _kept(model.cfg.positional_embedding_type)
    known = [field.name for field in fields(HookedTransformerConfig)]
    options = {name: getattr(model.cfg, name) for name in known if name in kept}
    for name, value, _ in odd_options(model.cfg, HookedTransformerConfig, ("dtype",)):
        if value not in _CHOICES.get(name, (value,)) or name not in (*kept, *_LEFT, *_ROTARY):
            raise WrongValueError(_UNSAVED.format(f"{name}={value!r}"))
    options["dtype"] = str(model.cfg.dtype).removeprefix("torch.")
    read = DyckTransformerConfig.read(model.language)
    if "symbols" in read:
        read = {"symbols": asdict(read["symbols"])}
    ids = model.vocabulary
    vocabulary = {"brackets": list(ids.brackets), "bos": ids.bos, "padding": ids.padding}
    found = {"options": options, "language": read, "vocabulary": vocabulary}
    if not model.cfg.predicts == model.cfg.d_vocab == model.cfg.d_vocab_out:
        found["predicts"] = model.cfg.predicts
    return found


def saved_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """The shapes of weights that `to_saved`'s sizes ask for."""
    return option_shapes(config["options"])


def from_saved(config: Mapping[str, Any], device: str | None = None) -> Any:
    """An adopted model as `to_saved` described it, without its weights.

    KeyError, TypeError and ValueError say that it describes none.
    """
    _check_keys("config", {"predicts": 0, **config}, {*_WHAT, "predicts"})
    positions = config["options"]["positional_embedding_type"]
    known = {field.name for field in fields(HookedTransformerConfig)}
    if positions == "rotary" and "rotary_dim" not in known:
        raise WrongValueError("a model with rotary positions needs transformer_lens<4")
    _check_keys("options", config["options"], _kept(positions) & known)
    _check_keys("vocabulary", config["vocabulary"], {"brackets", "bos", "padding"})
    options = dict(config["options"])
    _check_options(options)
    language = _language(config["language"])
    ids = Vocabulary(language, **config["vocabulary"])
    if ids.largest >= options["d_vocab"] or options["d_vocab"] < language.d_vocab:
        raise VocabularyError(f"{ids!r} in a vocabulary of d_vocab={options['d_vocab']}")
    if options["positional_embedding_type"] == "rotary":
        check_integer("n_ctx", options["n_ctx"], 1, _LONGEST_ROTARY)
        check_integer("rotary_dim", options["rotary_dim"], 1, options["d_head"])
    cfg = HookedTransformerConfig(
        **{**options, "dtype": DTYPES[options["dtype"]]}, init_weights=False, device=device
    )
    with warnings.catch_warnings():  # late releases of TransformerLens 3 say so of every model
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        kind = BareTransformer if ids.bos is None else HookedTransformer
        model = kind(cfg).eval()
    # before there was `predicts`, logits in another number had kept an order that nobody knows
    most = min(options["d_vocab"], options["d_vocab_out"])
    told = config.get("predicts", most if options["d_vocab"] == options["d_vocab_out"] else 0)
    predicts = check_integer("predicts", told, 0, most)
    if 0 < predicts < language.bos_token:
        raise VocabularyError(f"predicts={predicts} of the {language.bos_token} symbols")
    _read(model, ids, predicts)
    return model


def _check_options(options: dict[str, Any]) -> None:
    """Refuse what TransformerLens would take and stumble over later."""
    for name, known in _CHOICES.items():
        if not isinstance(options[name], str | None) or options[name] not in known:
            raise unknown_name(name, options[name], list(map(str, known)))
    for name in ("attn_only", "post_embedding_ln", "rotary_adjacent_pairs", "use_attn_scale"):
        if not isinstance(options.get(name, False), bool):
            raise WrongTypeError(f"{name} must be true or false, got {options[name]!r:.80}")
    for name in {"eps", "attn_scale", "rotary_base"} & set(options):
        check_number(name, options[name], 0.0, above=True)
    check_number("initializer_range", options["initializer_range"])
    if not isinstance(options["model_name"], str):
        raise WrongTypeError(f"model_name must be a text, got {options['model_name']!r:.80}")


def _kept(positions: Any) -> set[str]:
    return set(_KEPT if positions != "rotary" else (*_KEPT, *_ROTARY))


def _language(values: Mapping[str, Any]) -> DyckLanguage | SymbolLanguage:
    if "symbols" in values:
        _check_keys("language", values, {"symbols"})
        return SymbolLanguage(**values["symbols"])
    _check_keys("language", values, {"n_types", "max_depth", "brackets"})
    return DyckLanguage(**values)


def _check_keys(name: str, values: Any, keys: set[str]) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be an object, not {values!r:.80}")
    if set(values) != keys:
        raise ValueError(f"keys missing or unknown in {name}: {sorted(set(values) ^ keys)}")
