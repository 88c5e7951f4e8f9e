"""The balanced-bracket classifier of ARENA's exercises, from its state dict.

A bidirectional encoder that reads ``[start] brackets [end]`` and says at ``[start]`` whether the
brackets are balanced (ARENA 3.0, chapter 1.5.1, after a model of Redwood Research). One type of
bracket; three layers of two heads; padding is masked. The state dict is public, and you bring it.

Examples:
    >>> from tl_dyck.models.arena import arena_tokens
    >>> arena_tokens(["(())", "()"])
    tensor([[0, 3, 3, 4, 4, 2],
            [0, 3, 4, 2, 1, 1]])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import SupportsIndex, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_integer
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.models.hooked.own import HookedTransformer
from tl_dyck.models.state_dicts import read_state_dict
from tl_dyck.models.storage import check_finite, load_weights

_START, _PAD, _END = 0, 1, 2  # ARENA's token ids, as its brackets below
_BRACKETS = {"(": 3, ")": 4}
_NAMES = ("[start]", "[pad]", "[end]", *_BRACKETS)
_HIDDEN = -1e5  # what ARENA adds to the scores of padding
_LONGEST = 4096  # positions; a mask has the square of them


@checked
def load_arena(path: str | Path, device: str | None = None) -> HookedTransformer:
    """ARENA's bracket classifier as a HookedTransformer, with its padding masked.

    Sizes are read from the weights, so variants of other widths, heads and layers load too. The
    mask is read from the tokens of each call, so it holds in `run_with_cache`, `run_with_hooks` and
    head importance; of a residual stream (``start_at_layer=…``) it is read from `tokens` or
    `attention_mask`, one of which must be given: a residual stream does not show its padding.

    Args:
        path: of ``brackets_model_state_dict.pt``; read without running what a pickle may hold.
        device: where to put the model; None for TransformerLens' default.

    Returns:
        A model of tokens (see `arena_tokens`); logits ``[batch, pos, 2]``, of which position 0
        counts: unbalanced, balanced.

    Raises:
        CorruptFileError: the file is missing, or not such a state dict; the message says why.
        NotFiniteError: a weight is NaN or infinite.
    """
    source = str(path)
    kept = read_state_dict(path)
    weights = {name: value.float() for name, value in kept.items()}
    config = _config(weights, source, device)
    _check_built(config, sum(weight.numel() for weight in weights.values()), source)
    model = _Classifier(config)
    load_weights(model, weights, source)
    check_finite(weights, source)
    model.to(str(model.cfg.device), print_details=False)
    model.token_names = _NAMES
    model.eval()
    return model


def arena_tokens(
    texts: str | Sequence[str], *, n_ctx: SupportsIndex = 42
) -> Int[Tensor, "batch pos"]:
    """Texts of ``(`` and ``)`` as tokens: start 0, padding 1, end 2, ``(`` 3, ``)`` 4.

    Args:
        texts: one, or several.
        n_ctx: how many tokens the model reads, start and end included; ARENA's own reads 42, and of
            another it is ``model.cfg.n_ctx``.

    Raises:
        TypeError: a text is no text.
        ValueError: there is no text, a text has another character, or it is too long.
    """
    most = check_integer("n_ctx", n_ctx, least=2) - 2
    if not isinstance(texts, Iterable):
        raise WrongTypeError(f"give a text, or several, not {texts!r:.80}")
    rows = []
    for text in [texts] if isinstance(texts, str) else texts:
        if not isinstance(text, str):
            raise WrongTypeError(f"a text is a string of ( and ), not {text!r:.80}")
        if len(text) > most:
            raise WrongValueError(
                f"a text of {len(text)} brackets: the model reads at most {most} "
                f"(n_ctx={most + 2}, with start and end); another model may read more: give n_ctx"
            )
        odd = sorted(set(text) - set(_BRACKETS))
        if odd:
            raise WrongValueError(f"{text!r} has {odd[0]!r}: ARENA's classifier reads only ( and )")
        rows.append(torch.tensor([_START, *map(_BRACKETS.__getitem__, text), _END]))
    if not rows:
        raise WrongValueError("there is no text; for the empty one, give ['']")
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_PAD)


def is_balanced(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, " batch"]:
    """Whether the brackets of each row are balanced: what the classifier is to say."""
    step = (tokens == _BRACKETS["("]).long() - (tokens == _BRACKETS[")"]).long()
    depth = step.cumsum(-1)
    return (depth[:, -1] == 0) & (depth >= 0).all(-1)


def balanced_logit(
    logits: Float[Tensor, "batch pos 2"], tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """The margin of the right answer at the first position, a metric for head importance.

    Logit of the right class less that of the wrong one, so that larger is better.
    """
    # position 0 is read; logits are unbalanced, balanced
    margin = logits[:, 0, 1] - logits[:, 0, 0]
    return torch.where(is_balanced(tokens), margin, -margin)


def _check_built(config: HookedTransformerConfig, held: int, source: str) -> None:
    """Refuse sizes of a model that has many more weights than the file; names come later."""
    heads, width = config.n_heads * config.d_head, config.d_model
    # Q, K, V and O; in and out
    layer = 4 * heads * width + 2 * width * int(config.d_mlp or 0)
    built = config.n_layers * layer + (config.n_ctx + config.d_vocab) * width
    # a right file holds more than is reckoned here, without biases and norms: 1.5 is generous
    if built > 1.5 * held or config.n_ctx > _LONGEST:
        raise CorruptFileError(
            f"{source!r} is not ARENA's bracket classifier: its shapes are of a model of "
            f"{built:,} weights and {config.n_ctx:,} positions (at most {_LONGEST:,}), "
            f"and it has {held:,}"
        )


def _differs(wanted: int | None, found: int) -> bool:
    return wanted is not None and wanted != found


def _config(
    weights: Mapping[str, Tensor], source: str, device: str | None
) -> HookedTransformerConfig:
    """Sizes from shapes.

    Raises:
        CorruptFileError: a weight is missing, or is not of the classifier's shape.
    """

    def size(name: str, *wanted: int | None) -> tuple[int, ...]:
        shape = list(weights[name].shape) if name in weights else None
        fits = shape is not None and len(shape) == len(wanted) and 0 not in shape
        if shape is None or not fits or any(map(_differs, wanted, shape)):
            asked = ["any" if each is None else each for each in wanted]
            raise CorruptFileError(
                f"{source!r} is not ARENA's bracket classifier: {name} is {shape or 'missing'}, "
                f"not of shape {asked}"
            )
        return tuple(shape)

    n_ctx, d_model = size("pos_embed.W_pos", None, None)
    # 3: start, padding, end
    size("embed.W_E", len(_BRACKETS) + 3, d_model)
    size("unembed.W_U", d_model, 2)
    n_heads, _, d_head = size("blocks.0.attn.W_Q", None, d_model, None)
    _, d_mlp = size("blocks.0.mlp.W_in", d_model, None)
    return HookedTransformerConfig(
        model_name="arena-brackets",
        n_layers=len({name.split(".")[1] for name in weights if name.startswith("blocks.")}),
        n_ctx=n_ctx,
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_head,
        d_mlp=d_mlp,
        d_vocab=len(_BRACKETS) + 3,
        d_vocab_out=2,
        act_fn="relu",
        normalization_type="LN",
        attention_dir="bidirectional",
        use_hook_tokens=True,
        init_weights=False,
        device=device,
    )


@final
class _Classifier(HookedTransformer):
    """Says of its tokens which are padding; attention does not see those."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__(cfg, move_to_device=False)
        for block in self.blocks:
            block.attn.hidden = _HIDDEN

    def _seen(self, tokens: Tensor | None) -> Tensor | None:
        if tokens is None:
            raise WrongValueError(
                "a residual stream does not show which tokens are padding: give tokens=…, or "
                "attention_mask=… (1 where a token is none)"
            )
        return tokens != _PAD
