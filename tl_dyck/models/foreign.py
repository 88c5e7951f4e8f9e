"""Models as others keep them, as a HookedTransformer: a bridge, a GPT-2, a folder, a state dict.

Knows: names and shapes of weights in each of these forms, and that what comes out must compute what
went in. Does not know: which token id is which symbol (`tl_dyck.models.adoption`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_integer, check_number, shown
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import (
    LARGEST_DESCRIPTION,
    CorruptFileError,
    one_line,
    read_json,
)
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.models.state_dicts import (
    BUFFERS,
    option_shapes,
    read_folder,
    read_nano,
    read_state_dict,
    without,
)
from tl_dyck.reading.activations import canonical_activation
from tl_dyck.reading.inputs import check_placed, unwrapped


class NotCarriedError(DyckError, ValueError):
    """A model has a part that no HookedTransformer of the installed release has."""


#: The same of `transformers`' GPT-2: causal masks.
_GPT2_BUFFERS = (".attn.bias", ".attn.masked_bias")
_LONGEST = 1 << 15  # positions: TransformerLens 3 makes a mask of their square


@checked
def as_hooked(
    model: nn.Module | Mapping[str, Tensor] | str | Path,
    *,
    config: HookedTransformerConfig | Mapping[str, Any] | None = None,
) -> Any:
    """A model of others as a HookedTransformer, which everything here reads; token ids stay.

    Args:
        model: one of

            - a HookedTransformer, which comes back as it is, out of what torch has put around it;
            - a `TransformerBridge` of TransformerLens 3 or 4, with its weights processed or not;
            - a GPT-2 of `transformers`, or a folder of one, as `save_pretrained` writes it: with
              ``config.json``, and ``model.safetensors``, its shards or ``pytorch_model.bin``;
            - a checkpoint of nanoGPT, a dictionary with ``model`` and ``model_args``;
            - a state dict of a HookedTransformer, or a file of one (``.pt``, ``.pth``,
              ``.safetensors``), or of a checkpoint with one, with `config`. Prefixes of wrappers
              (``_orig_mod.``, ``module.``) and masks of old releases are left out.
        config: of a state dict, and of nothing else: what the HookedTransformer is.

    Returns:
        A HookedTransformer with copies of the weights, in eval mode and of their precision. Hooks
        of a bridge stay behind.

    Raises:
        TypeError: none of these.
        NotCarriedError: a part that a HookedTransformer has not, by its name; weights that are not
            those of the options; or the result does not compute what the model does, on drawn
            tokens, to the square root of the precision.
        CorruptFileError: files that are missing, or are not what they say.
    """
    if isinstance(model, str | Path):
        return _from_path(Path(model), config)
    if isinstance(model, Mapping):
        return _from_state(model, config, "the state dict")
    if config is not None:
        raise WrongTypeError(
            f"config is for a state dict or a file of one; {shown(model)} brings its own"
        )
    theirs: Any = unwrapped(model)
    if isinstance(theirs, HookedTransformer):
        return theirs
    kinds = _kinds(theirs)
    if "TransformerBridge" in kinds:
        check_placed(theirs)
        return same_logits(_from_bridge(theirs), theirs, theirs)
    if "PreTrainedModel" in kinds:
        found = _from_gpt2(theirs.config.to_dict(), theirs.state_dict(), type(theirs).__name__)
        return same_logits(found, theirs, lambda tokens: theirs(tokens).logits)
    raise WrongTypeError(
        "no HookedTransformer, TransformerBridge, GPT-2 of transformers, folder or state dict of "
        f"one: {type(theirs).__name__}"
    )


def can_be_hooked(model: Any) -> bool:
    """Whether `as_hooked` knows models of this kind."""
    inside = unwrapped(model)
    known = isinstance(inside, str | Path | Mapping | HookedTransformer)
    return known or bool(_kinds(inside) & {"TransformerBridge", "PreTrainedModel"})


def _kinds(model: Any) -> set[str]:
    """By name, so that nothing is imported to look at a model."""
    return {kind.__name__ for kind in type(model).__mro__}


# --- a bridge -------------------------------------------------------------------------------------


def _from_bridge(bridge: Any) -> Any:
    """Options by their names, which are those of a HookedTransformer, and weights by theirs."""
    try:
        from transformer_lens.model_bridge.get_params_util import get_bridge_params
    except ImportError as error:  # the first bridges keep their weights otherwise
        raise NotCarriedError(
            "this release of TransformerLens does not say which weights a TransformerBridge has; "
            "upgrade transformer_lens"
        ) from error

    cfg = bridge.cfg
    known = {field.name for field in fields(HookedTransformerConfig)} - _NOT_TAKEN
    options = {name: getattr(cfg, name) for name in known if hasattr(cfg, name)}
    if cfg.normalization_type in ("RMS", "RMSPre") or getattr(cfg, "final_rms", False):
        raise NotCarriedError(
            f"this bridge has RMSNorm (cfg.normalization_type={cfg.normalization_type!r}, "
            f"cfg.final_rms={getattr(cfg, 'final_rms', False)!r})"
        )
    for name in ("gated_mlp", "parallel_attn_mlp", "num_experts"):
        if getattr(cfg, name, None):
            raise NotCarriedError(f"this bridge has cfg.{name}={getattr(cfg, name)!r}")
    weights = {name: weight.detach() for name, weight in get_bridge_params(bridge).items()}
    for where in _norms(cfg):  # early releases leave them out
        norm = _at(bridge, where)
        for mine, names in (("w", ("w", "weight")), ("b", ("b", "bias"))):
            found = next((getattr(norm, n, None) for n in names), None)
            if isinstance(found, Tensor):
                weights.setdefault(f"{where}.{mine}", found.detach())
    found = _built({**options, "dtype": weights["embed.W_E"].dtype}, weights, "this bridge")
    found.tokenizer = getattr(bridge, "tokenizer", None)
    return found


#: Options that say where a model comes from or how it is made, not what it computes.
_NOT_TAKEN = {"init_weights", "init_mode", "seed", "device", "n_params", "tokenizer_name"}
_NOT_TAKEN |= {"original_architecture", "model_name", "checkpoint_index", "checkpoint_label_type"}
_NOT_TAKEN |= {"checkpoint_value", "from_checkpoint", "n_devices", "trust_remote_code", "dtype"}
_NOT_TAKEN |= {"tie_word_embeddings", "tokenizer_prepends_bos", "rotary_base", "rotary_dim"}


def _norms(cfg: Any) -> list[str]:
    blocks = [f"blocks.{n}.{ln}" for n in range(cfg.n_layers) for ln in ("ln1", "ln2")]
    return [*blocks, "ln_final"] if cfg.normalization_type == "LN" else []


def _at(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = root[int(name)] if name.isdigit() else getattr(root, name, None)
    return root


# --- transformers' GPT-2 --------------------------------------------------------------------------

#: What an option of a GPT-2 must be; another changes what is computed.
_PLAIN = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def _from_gpt2(config: Mapping[str, Any], state: Mapping[str, Tensor], source: str) -> Any:
    """Weights of a GPT-2: there ``x @ W + b`` with query, key and value side by side."""
    if config.get("model_type") != "gpt2":
        raise NotCarriedError(
            f"{source} is a {config.get('model_type')!r}; of transformers' models GPT-2 is read "
            "here, and others through TransformerLens: TransformerBridge.boot_transformers(…)"
        )
    for name, plain in _PLAIN.items():
        if config.get(name, plain) != plain:
            raise NotCarriedError(f"{source} has {name}={config[name]!r}, not {plain!r}")
    size = {
        ours: check_integer(theirs, config.get(theirs), least=1)
        for ours, theirs in (
            *(("n_layers", "n_layer"), ("d_model", "n_embd"), ("n_heads", "n_head")),
            *(("n_ctx", "n_positions"), ("d_vocab", "vocab_size")),
        )
    }
    if size["d_model"] % size["n_heads"]:
        raise NotCarriedError(f"{source}: {size['d_model']} dimensions for {size['n_heads']} heads")
    heads, d_head = size["n_heads"], size["d_model"] // size["n_heads"]
    weights = _Taken(without(state, _GPT2_BUFFERS), source)
    read = weights.read
    found: dict[str, Tensor] = {
        "embed.W_E": read("wte.weight"),
        "pos_embed.W_pos": read("wpe.weight"),
    }
    for n in range(size["n_layers"]):
        mine, theirs = f"blocks.{n}", f"h.{n}"
        for bias, part in (("W", "weight"), ("b", "bias")):
            joint = read(f"{theirs}.attn.c_attn.{part}")
            for name, each in zip("QKV", joint.chunk(3, dim=-1), strict=True):
                split = each.unflatten(-1, (heads, d_head))
                found[f"{mine}.attn.{bias}_{name}"] = split.movedim(-2, 0)
            out = read(f"{theirs}.attn.c_proj.{part}")
            found[f"{mine}.attn.{bias}_O"] = (
                out.unflatten(0, (heads, d_head)) if out.ndim == 2 else out
            )
            found[f"{mine}.mlp.{bias}_in"] = read(f"{theirs}.mlp.c_fc.{part}")
            found[f"{mine}.mlp.{bias}_out"] = read(f"{theirs}.mlp.c_proj.{part}")
        for ln, theirs_ln in (("ln1", "ln_1"), ("ln2", "ln_2")):
            found[f"{mine}.{ln}.w"] = read(f"{theirs}.{theirs_ln}.weight")
            found[f"{mine}.{ln}.b"] = read(f"{theirs}.{theirs_ln}.bias")
    found["ln_final.w"], found["ln_final.b"] = read("ln_f.weight"), read("ln_f.bias")
    head = weights.head(found["embed.W_E"], config.get("tie_word_embeddings", True))
    found["unembed.W_U"] = head.T
    found["unembed.b_U"] = weights.left.pop("lm_head.bias", head.new_zeros(len(head)))
    weights.check_empty()
    activation = str(config.get("activation_function", "gelu_new"))
    options = {
        **size,
        "d_head": d_head,
        "d_mlp": 4 * size["d_model"] if config.get("n_inner") is None else config["n_inner"],
        "d_vocab_out": len(head),
        "act_fn": canonical_activation(activation),
        "eps": config.get("layer_norm_epsilon", 1e-5),  # as transformers has it, and 4 d_model
        "normalization_type": "LN",
        "dtype": head.dtype,
    }
    return _built(options, found, source)


class _Taken:
    """Weights by their names, each of which is read once; what is left over is named."""

    def __init__(self, weights: Mapping[str, Tensor], source: str) -> None:
        self.left = {name.removeprefix("transformer."): value for name, value in weights.items()}
        self._source = source
        if len(self.left) < len(weights):
            raise CorruptFileError(f"{source} has a weight twice, once behind 'transformer.'")

    def read(self, name: str) -> Tensor:
        if name not in self.left:
            raise CorruptFileError(f"{self._source} has no weight {name!r}")
        return self.left.pop(name)

    def head(self, embedding: Tensor, tied: bool) -> Tensor:
        """The unembedding, which is the embedding where there is none and none is wanted."""
        if tied and "lm_head.weight" not in self.left:
            return embedding
        return self.read("lm_head.weight")

    def check_empty(self) -> None:
        if self.left:
            named = ", ".join(map(repr, sorted(self.left)[:3]))
            raise NotCarriedError(
                f"{self._source} has weights that no plain GPT-2 has: {named}; a model with "
                "another head or other parts is not carried"
            )


# --- files and state dicts ------------------------------------------------------------------------


def _from_path(path: Path, config: Any) -> Any:
    source = repr(str(path))
    if not path.is_dir():
        if config is None and (nano := read_nano(path)) is not None:
            return _from_gpt2(*nano, source)
        if config is None and path.exists():
            raise WrongTypeError(
                f"{source} is a file of weights, which do not say what they are of; give "
                "config=HookedTransformerConfig(…) too"
            )
        return _from_state(read_state_dict(path), config, source)
    if config is not None:
        raise WrongTypeError(f"config is for a file of weights; the folder {source} has its own")
    said = read_json(path / "config.json", LARGEST_DESCRIPTION)
    if not isinstance(said, Mapping) or "model_type" not in said:
        ours = isinstance(said, Mapping) and str(said.get("format")).startswith("tl_dyck.")
        hint = "load_model(folder) reads it" if ours else "of a state dict, name the file"
        raise CorruptFileError(f"config.json in {source} is not of a model of transformers; {hint}")
    found = _from_gpt2(said, read_folder(path), source)
    if (path / "tokenizer.json").exists():
        found.tokenizer = _tokenizer(path, source)
    return found


def _tokenizer(path: Path, source: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    try:
        return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    except Exception as error:  # whatever a file that someone made up leads to there
        raise CorruptFileError(
            f"the tokenizer in {source} cannot be read: {one_line(error)}"
        ) from error


def _from_state(state: Mapping[Any, Any], config: Any, source: str) -> Any:
    if config is None:
        raise WrongTypeError(
            f"{source} does not say what it is of; give config=HookedTransformerConfig(…) too"
        )
    if not all(isinstance(value, Tensor) for value in state.values()):
        raise WrongTypeError(f"{source} is no state dict: not all of its values are tensors")
    weights = without(state, BUFFERS)
    options = config if isinstance(config, Mapping) else _options(config)
    floats = [each.dtype for each in weights.values() if each.is_floating_point()]
    dtype = floats[0] if floats else torch.float32
    return _built({**options, "dtype": dtype}, weights, source)


def _options(config: Any) -> dict[str, Any]:
    return {each.name: getattr(config, each.name) for each in fields(config) if each.init}


# --- the way all of them end ----------------------------------------------------------------------


def _built(options: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> Any:
    """A HookedTransformer of these options with these weights, and no others."""
    layers = sum(name.endswith(".attn.W_Q") for name in weights)
    if options.get("n_layers") != layers:
        raise NotCarriedError(
            f"{source} has weights of {layers} layers, and n_layers={options.get('n_layers')!r}"
        )
    whole = next((name for name in weights if not weights[name].is_floating_point()), None)
    if whole is not None:
        raise NotCarriedError(f"{source} has a weight {whole!r} of {weights[whole].dtype}")
    try:
        cfg = HookedTransformerConfig(**{**options, "init_weights": False, "device": "cpu"})
        check_number("eps", cfg.eps, 0.0)
        check_integer("n_ctx", cfg.n_ctx, 1, _LONGEST)
        for name, shape in option_shapes(vars(cfg)):  # before anything is built
            _check_shape(name, weights, shape)
    except (ValueError, TypeError, AssertionError) as error:  # ours, and those of TransformerLens 3
        said = one_line(error)
        raise NotCarriedError(f"{source} cannot be a HookedTransformer: {said}") from error
    model: Any = HookedTransformer(cfg, move_to_device=False)
    wanted = dict(model.named_parameters())
    odd = sorted(name for name in set(weights) - set(wanted) if weights[name].count_nonzero())
    if odd:
        raise NotCarriedError(
            f"{source} is not the HookedTransformer of its options: it has {odd[0]!r}"
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            try:
                _check_shape(name, weights, list(parameter.shape))
            except ValueError as error:
                raise NotCarriedError(
                    f"{source} is not the HookedTransformer of its options: {error}"
                ) from error
            parameter.copy_(weights[name])
    return model.eval()


def _check_shape(name: str, weights: Mapping[str, Tensor], shape: list[int]) -> None:
    if name not in weights:
        raise WrongValueError(f"there is no weight {name!r}")
    if list(weights[name].shape) != shape:
        found = list(weights[name].shape)
        raise WrongValueError(f"the weight {name!r} is {found}, and by the options {shape}")


def same_logits(
    mine: Any, theirs: nn.Module, run: Callable[[Tensor], Tensor], first: int | None = None
) -> Any:
    """The model, if it has the logits of the one it was made from; with `first`, after that token.

    To √eps of the largest, 3e-4 in single precision: rounding, and what comes of it in LayerNorms
    of near zero, stays below; another formula does not.
    """
    cfg = mine.cfg
    generator = torch.Generator().manual_seed(0)
    before = torch.full((4, int(first is not None)), first or 0)
    most = min(cfg.n_ctx, 32) - before.shape[1]  # another formula shows on any tokens
    tokens = torch.randint(cfg.d_vocab if first is None else first, (4, most), generator=generator)
    place = next(theirs.parameters()).device
    with torch.no_grad():
        wanted = run(tokens.to(place)).double().cpu()
        found = mine(torch.cat([before, tokens], 1))[:, before.shape[1] :].double().cpu()
    allowed = torch.finfo(cfg.dtype).eps ** 0.5 * (1 + float(wanted.abs().max()))
    off = float((wanted - found).abs().max()) if wanted.shape == found.shape else float("inf")
    if not off <= allowed:
        raise NotCarriedError(
            f"this {type(theirs).__name__} computes what no plain HookedTransformer does: its "
            f"logits on drawn tokens are off by {off:.2g}, and rounding explains {allowed:.1g}; "
            "hooks, or a part that its options do not name"
        )
    return mine.to(str(place)) if place.type != "cpu" else mine
