"""From what a user gives, text or tokens, to what a model reads; and whether that is known.

Everything here reads the ids of `DyckLanguage`. Of a model whose ids are others a measure would be
a number without meaning, so such a model is refused until its `Vocabulary` is known.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_instance, not_finite
from tl_dyck.language import DyckLanguage, Language, VocabularyError, VocabularyWarning
from tl_dyck.language.alphabet import Symbols
from tl_dyck.language.checks import BOS_STRING
from tl_dyck.language.symbols import needs_stack

# Of a first symbol that may not come: at least so large a share of the likeliest symbol's
# probability, and so many times that of one that may. Untrained models do not get there; one that
# learned from other ids does, as it gives what it learned to come 1/k and what did not almost 0.
_CLEARLY, _TIMES = 0.5, 100


def unwrapped(model: Any) -> Any:
    """The model inside what torch puts around one, if it does; else what was given.

    That is `torch.compile`, `DataParallel` and its like, and a `Sequential` of one.
    """
    while True:
        if type(model).__name__ == "OptimizedModule":  # its class takes seconds to import
            model = model._orig_mod
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(model, nn.Sequential) and len(model) == 1:
            model = model[0]
        else:
            return model


def hides_bos(model: Any) -> bool:
    """Whether a model reads no BOS: after the empty string it says nothing, and nothing is asked.

    Strings start with BOS all the same, see `tl_dyck.models.bare`.
    """
    return bool(getattr(getattr(unwrapped(model), "cfg", None), "hides_bos", False))


def looks_ahead(model: Any) -> bool:
    """Whether each token reads those after it, too; an RNN and a function say nothing of that."""
    cfg = getattr(unwrapped(model), "cfg", None)
    return bool(getattr(cfg, "attention_dir", "causal") != "causal")


def longest_read(model: Any) -> float:
    """How many tokens a model reads, BOS included; infinite if nothing says."""
    inside = unwrapped(model)
    cfg = getattr(inside, "cfg", getattr(inside, "config", None))
    if not getattr(cfg, "has_position", True):
        return math.inf  # an RNN that counts no positions
    return float(getattr(cfg, "n_ctx", math.inf))


def check_placed(model: Any) -> None:
    """Raise ValueError for weights on the meta device, or of a type that cannot be run."""
    types = set()
    for name, weight in model.named_parameters() if isinstance(model, nn.Module) else ():
        if weight.is_meta:
            raise WrongValueError(
                f"{name} is on the meta device, which keeps shapes and no numbers; build or load "
                "the model on another device"
            )
        types.add(weight.dtype)
    config = getattr(model, "cfg", None)
    told = getattr(config, "dtype", None)
    if config is None or types in (set(), {told}):
        return
    try:  # as .half() leaves it: some releases run it, some parts do not
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device))
    except RuntimeError as error:
        raise WrongValueError(
            f"this model cannot run: its weights are {', '.join(sorted(map(str, types)))} and "
            f"model.cfg.dtype is {told}; convert with model.to(dtype), which changes both"
        ) from error


def warn_of_first(model: Any, language: Language, may_come: Bool[Tensor, " symbol"]) -> None:
    """Warn if, after BOS, a model clearly prefers a symbol that may not come to one that may.

    What is claimed: a symbol that no string begins with has at least half the probability of the
    likeliest token, and 100 times that of some symbol that strings do begin with. So it is where
    the id of one is given for the other. Ids of symbols that may both come, or may both not, can be
    exchanged without a warning; and a model that looks ahead, or whose logits are no tokens, is not
    asked.

    Args:
        model: reads `language`.
        language: whose tokens it reads.
        may_come: which of its symbols a string may begin with.

    Warns:
        VocabularyWarning: it is so.
    """
    named = named_logits(model)
    if hides_bos(model):
        return
    if looks_ahead(model) or (named or 0) < language.bos_token or may_come.all():
        return
    with torch.no_grad():
        chances = model(torch.tensor([[language.bos_token]], device=model.cfg.device))[0, 0]
    chances = chances.double().softmax(-1).cpu()
    symbols = chances[: language.bos_token]
    never, least = symbols.masked_fill(may_come, 0.0), symbols.masked_fill(~may_come, 1.0)
    worst, rarest = int(never.argmax()), int(least.argmin())
    if never[worst] >= _CLEARLY * chances.max() and never[worst] >= _TIMES * least[rarest]:
        names = language.alphabet
        warnings.warn(
            f"after BOS this model gives {names[worst]!r}, which no string begins with, "
            f"{float(never[worst]):.0%}, and {names[rarest]!r}, which may come, "
            f"{float(least[rarest]):.1g}: check the ids in the Vocabulary; one of these may have "
            "the other's",
            VocabularyWarning,
            stacklevel=3,
        )


def one_model(model: Any, what: str) -> None:
    """Raise TypeError for a list, and for what has no configuration; one model is measured."""
    if isinstance(model, list | tuple | dict):
        raise TypeError(
            f"{what} takes one model, not a {type(model).__name__} of {len(model)}; "
            "call it for each of them"
        )
    if not hasattr(model, "cfg"):
        inside = unwrapped(model)
        hint = f"; give the {type(inside).__name__} inside it" if hasattr(inside, "cfg") else ""
        raise TypeError(f"{what} takes a HookedTransformer, not {type(model).__name__}{hint}")
    check_placed(model)


def measured(model: Any, what: str) -> None:
    """As `one_model`, and raise ValueError for weights that are no finite numbers.

    A query whose scores are NaN attends to nothing, so that such a model still gives numbers.
    """
    one_model(model, what)
    check_finite(model)


def check_finite(model: Any) -> None:
    """Raise ValueError for a model whose weights are NaN or infinite; functions have none."""
    inside = unwrapped(model)
    if isinstance(inside, nn.Module):
        wrong = not_finite(dict(inside.named_parameters()))
        if wrong is not None:
            raise WrongValueError(
                f"{wrong}, so that nothing can be measured of this model; did its training diverge?"
            )


def as_tokens(model: Any, text: str | Int[Tensor, "*batch pos"]) -> Int[Tensor, "batch pos"]:
    """Tokens with a batch dimension, from a string (BOS is prepended) or tokens (taken as is).

    Raises:
        TypeError: neither a string nor integers.
        VocabularyError: a string, and a model that has no tokenizer.
        ValueError: tokens of another shape, or more than the model reads.
    """
    one_model(model, "reading tokens")
    if isinstance(text, str):
        if getattr(model, "tokenizer", None) is None:
            raise VocabularyError(
                f"the model has no tokenizer to read {text!r}; give tokens, or "
                "tl_dyck.adopt(model, Vocabulary(language, brackets=…, bos=…))"
            )
        tokens: Tensor = model.to_tokens(text, truncate=False)
    else:
        check_instance("the input", text, Tensor, "text, or a tensor of tokens")
        tokens = text
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise WrongTypeError(f"tokens must be integers, not {tokens.dtype}")
    if tokens.ndim not in (1, 2) or 0 in tokens.shape:
        raise ValueError(f"tokens must be [pos] or [batch, pos], not {list(tokens.shape)}")
    n_ctx = model.cfg.n_ctx
    if tokens.shape[-1] > n_ctx:
        raise ValueError(
            f"{tokens.shape[-1]} tokens (BOS included) exceed this model's n_ctx={n_ctx}"
        )
    return tokens if tokens.ndim == 2 else tokens[None]


def token_texts(model: Any, ids: Int[Tensor, " pos"], language: Language | None) -> list[str]:
    """Tokens as text: by the language, else by the tokenizer, alphabet or names, else numbers."""
    if language is not None:
        return Symbols((*language.alphabet, BOS_STRING)).words(ids.tolist())
    if getattr(model, "token_names", None) is not None:
        return [model.token_names[token] for token in ids.tolist()]
    known = getattr(model, "tokenizer", getattr(getattr(model, "config", None), "alphabet", None))
    texts = ids.tolist() if known is None else model.to_str_tokens(ids)
    return [str(token) for token in texts]


def language_of(model: Any, language: Language | None = None) -> Any:
    """The language that was given along with tokens, else the model's own.

    Raises:
        VocabularyError: neither is known, or they have other tokens.
    """
    if language is not None:
        check_instance("language", language, Language, "a language")
        check_reads(model, language, told=True)
        return language
    one_model(model, "reading brackets")
    own: Any = getattr(model.cfg, "language", None)
    if own is None:
        raise VocabularyError(
            f"nothing says which token id of this model (d_vocab={model.cfg.d_vocab}) is which "
            "bracket; pass tl_dyck.adopt(model, Vocabulary(language, brackets=…, bos=…))"
        )
    return own


def language_with_stack(model: Any, what: str, *given: Any) -> None:
    """Refuse a language without a stack, where one is measured, with its name in the message.

    The first that is known counts: of what is given, languages or data, or else the model's own.
    For `what`, with its verb, see `needs_stack`.
    """
    languages = (getattr(each, "language", each) for each in (*given, getattr(model, "cfg", None)))
    known = next((each for each in languages if isinstance(each, Language)), None)
    if known is not None:
        needs_stack(known, what)


def check_reads(model: Any, language: Language, *, told: bool = False) -> None:
    """Refuse a model of which nobody has said that it reads the tokens of a language.

    A HookedTransformer says so by ``cfg.language`` (ours do, and what `tl_dyck.adopt` returns), an
    RNN by its alphabet or depth counter. A function of tokens is taken at its word.

    Args:
        model: a HookedTransformer, a `TwoLayerRNN`, or any function of tokens.
        language: the language.
        told: the caller gave the language along with tokens, which is taken for an answer if the
            model has just as many ids.

    Raises:
        VocabularyError: the ids are unknown, or are another language's.
    """
    model = unwrapped(model)
    check_placed(model)
    cfg = getattr(model, "cfg", None)
    if cfg is not None:
        own = getattr(cfg, "language", None)
        if own is None:
            _refuse_unknown(f"this model (d_vocab={cfg.d_vocab})", cfg.d_vocab, language, told)
        elif isinstance(own, DyckLanguage) and isinstance(language, DyckLanguage):
            if own.n_types != language.n_types:
                raise VocabularyError(
                    f"the model reads {own}, whose tokens are not those of {language}: "
                    f"{own.n_types} types of brackets, not {language.n_types}"
                )
        elif own.alphabet != language.alphabet:
            raise VocabularyError(
                f"the model reads {own}, whose tokens are not those of {language}: "
                f"{' '.join(own.alphabet)}, not {' '.join(language.alphabet)}"
            )
        return
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "alphabet"):
        return
    if config.n_types is not None:
        counted = needs_stack(language, "the depth that this RNN counts is")
        if config.n_types != counted.n_types:
            raise VocabularyError(
                f"the RNN counts the depth of {config.n_types} types of brackets, "
                f"but {counted} has {counted.n_types}"
            )
    elif config.alphabet is None:
        what = f"this RNN, which has no alphabet (d_vocab={config.d_vocab})"
        _refuse_unknown(what, config.d_vocab, language, told)
    elif config.alphabet[: language.bos_token] != language.alphabet:
        raise VocabularyError(
            f"the RNN's tokens 0..{language.bos_token - 1} are "
            f"{' '.join(config.alphabet[: language.bos_token])}, "
            f"those of {language} are {' '.join(language.alphabet)}"
        )


def named_logits(model: Any) -> int | None:
    """Of so many of a model's first logits it is known that logit i is of token i.

    All of ours, and of any model with as many logits as tokens; else as many as `tl_dyck.adopt` was
    told. 0 if nobody says or they are classes; None of a function, which is taken at its word.
    """
    model = unwrapped(model)
    config: Any = getattr(model, "cfg", getattr(model, "config", None))
    if not (hasattr(config, "d_vocab") and hasattr(config, "d_vocab_out")):
        return None
    told = getattr(config, "predicts", None)
    alike = config.d_vocab if config.d_vocab == config.d_vocab_out else 0
    return int(alike if told is None else told)


def check_predicts(model: Any, language: Language, *, told: bool = False) -> None:
    """Refuse a model of which nobody has said that it reads *and predicts* a language's tokens.

    For whatever reads logits by the tokens that they are of; arguments are those of `check_reads`.

    Raises:
        VocabularyError: ids or logits are unknown, or are another language's or of classes.
    """
    check_reads(model, language, told=told)
    named = named_logits(model)
    if named is not None and named < language.bos_token:
        config: Any = getattr(unwrapped(model), "cfg", getattr(model, "config", None))
        raise VocabularyError(
            f"nothing says which of the {config.d_vocab_out} logits of this model are of the "
            f"{language.bos_token} symbols of {language}; pass tl_dyck.adopt(model, Vocabulary("
            "language, …), outputs=[the id that each logit is of, None if of none])"
        )


def logit_name(language: Language, named: int | None, logit: int) -> str:
    """What a logit is of: a symbol, BOS, another token, or nothing that is known."""
    names = (*language.alphabet, "BOS")[:named]
    if logit < len(names):
        return names[logit]
    return f"token {logit}" if named is None or logit < named else f"logit {logit}"


def _refuse_unknown(what: str, d_vocab: int, language: Language, told: bool) -> None:
    if told and d_vocab == language.d_vocab:
        return
    alike = "; if they are 0 to " + f"{language.bos_token}, BOS last, Vocabulary.ours(language)"
    raise VocabularyError(
        f"nothing says which token id of {what} is which bracket; pass "
        "tl_dyck.adopt(model, Vocabulary(language, brackets=[ids of "
        f"{' '.join(language.alphabet)}], bos=…)){alike if d_vocab == language.d_vocab else ''}"
    )
