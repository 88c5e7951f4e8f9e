"""The named model families of Wen et al. 2023, and the registry in which others put theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import Registry, unknown_name
from tl_dyck.language import VocabularyError
from tl_dyck.language.symbols import needs_stack
from tl_dyck.models.config import OPTIONS, DyckTransformerConfig
from tl_dyck.models.embeddings import DEPTH_EMBEDDINGS, depth_embedding_size
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.tasks import Task, load_task

#: A family makes the configuration for a task, ours or a plain HookedTransformerConfig; keyword
#: arguments override fields of the configuration.
ModelFamily = Callable[..., Any]

models: Registry[ModelFamily] = Registry("model", "tl_dyck.models")
register_model = models.register
"""Decorator that registers a model of your own: see `Registry.register`."""


def list_models() -> list[str]:
    """The names of all model families, third parties' included."""
    return models.names()


@checked
def get_config(name: str, task: Task | str, **overrides: Any) -> DyckTransformerConfig:
    """The configuration of a named family for a task.

    Args:
        name: a family, see `list_models`.
        task: a task or its name; it fixes vocabulary, depth, `n_ctx` (its longest length and BOS)
            and `t_max`.
        **overrides: fields of `DyckTransformerConfig`, for example
            ``n_layers=3, n_heads=4, d_model=64, n_ctx=2001``; also TransformerLens'
            ``attn_only=True`` (no MLP) and ``normalization_type=None`` (no LayerNorm).

    Returns:
        A configuration for `build_model`.

    Raises:
        UnknownNameError: unknown family, task or field; the message suggests the nearest.
        ValueError: the overrides contradict each other.
    """
    if isinstance(task, str):
        task = load_task(task)
    overrides = _in_our_words(overrides)
    for key in overrides:
        if key not in OPTIONS and key != "seed":  # of which the config itself has something to say
            raise unknown_name("model option", key, OPTIONS)
    return config_for(models.get(name)(task, **overrides), task)


@checked
def config_for(
    config: DyckTransformerConfig | HookedTransformerConfig | str, task: Task | str
) -> DyckTransformerConfig:
    """The configuration that is meant: one of ours, a family's name, or TransformerLens' own.

    Args:
        config: of TransformerLens' own the model has learned positions, "gpt" blocks (maybe without
            MLP or LayerNorm), and as many tokens as the language.
        task: a task or its name; what TransformerLens' own is completed by.

    Raises:
        TypeError: something else.
        UnknownNameError: no such family.
        VocabularyError: another number of tokens than the language has.
        ValueError: an architecture that is not ours; the message names the option.
    """
    if isinstance(config, str):
        return get_config(config, task)
    known = load_task(task) if isinstance(task, str) else task
    if isinstance(config, DyckTransformerConfig):
        return config
    if not isinstance(config, HookedTransformerConfig):
        raise TypeError(
            "give a configuration (see get_config), or the name of a family, "
            f"not {type(config).__name__}"
        )
    language = known.language
    if config.d_vocab != language.d_vocab or config.d_vocab_out not in (-1, language.d_vocab):
        raise VocabularyError(
            f"the configuration has d_vocab={config.d_vocab} and d_vocab_out={config.d_vocab_out}, "
            f"but {language} has {language.d_vocab} tokens, its brackets and BOS: give that"
        )
    return DyckTransformerConfig.of_plain(config, language)


def _in_our_words(overrides: dict[str, Any]) -> dict[str, Any]:
    """`attn_only` and `normalization_type` as the fields from which they are derived."""
    found = dict(overrides)
    if "attn_only" in found:
        found["mlp"] = not found.pop("attn_only")
    if "normalization_type" in found:
        norm = found.pop("normalization_type")
        if norm not in ("LN", None):
            raise unknown_name("normalization_type", norm, ("LN", "None"))
        found["layer_norm"] = norm == "LN"
    return found


def _family(name: str, defaults: dict[str, Any]) -> ModelFamily:
    def family(task: Task, **overrides: Any) -> DyckTransformerConfig:
        return _config(name, {**defaults, **overrides}, task, "d_model" in overrides)

    return family


def _config(name: str, given: dict[str, Any], task: Task, is_wide: bool) -> DyckTransformerConfig:
    values: dict[str, Any] = {
        "model_name": name,
        **DyckTransformerConfig.read(task.language),
        "n_ctx": max(*task.train_lengths, *task.long_lengths) + 1,
        "t_max": max(task.train_lengths),
        "n_layers": 2,
        "d_model": 50,
        "act_fn": "relu",
        **given,
    }
    if values.get("embedding") in DEPTH_EMBEDDINGS and not is_wide:
        language = needs_stack(
            task.language, f"the family {name!r}, with its minimal first layer, is"
        )
        # the paper's 50 wherever it is enough
        values["d_model"] = max(50, depth_embedding_size(values["embedding"], language))
    values.setdefault("n_heads", 1)
    values.setdefault("d_mlp", values["d_model"])
    return DyckTransformerConfig(**values)


_GPT = "standard pre-LN GPT, 2 layers, 1 head"
_UNIFORM: dict[str, Any] = {"attention": "uniform"}
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": (f"{_GPT}, no positions", {}),
    "gpt-linear": (f"{_GPT}, linear positions (Yao et al. 2021)", {"position": "linear"}),
    "gpt-learned": (f"{_GPT}, learned positions", {"position": "learned"}),
    "gpt-sinusoidal": (f"{_GPT}, sinusoidal positions", {"position": "sinusoidal"}),
    "attn-only": ("attention-only GPT, 2 layers, 1 head, no positions", {"mlp": False}),
    "gpt-uniform": ("standard GPT whose attention is fixed to uniform", _UNIFORM),
    "eq6": ("2 layers of the paper's Eq. 6: LayerNorm on the attention output", {"block": "eq6"}),
    "eq6-uniform": (
        "2 layers of Eq. 6, uniform attention (Corollary 1)",
        {"block": "eq6", **_UNIFORM},
    ),
    "eq49": (
        "2 layers of the paper's Eq. 49: LayerNorm around residual and attention",
        {"block": "eq49"},
    ),
    "minimal-uniform": (
        "minimal first layer (Eq. 19), uniform attention",
        {"n_layers": 1, "block": "eq6", "embedding": "onehot", **_UNIFORM},
    ),
}
for _embedding, _equation in (("onehot", "19"), ("split", "20"), ("yao", "21")):
    for _name, _block, _then in (
        ("minimal", "eq6", "one layer of Eq. 6"),
        ("figure2", "bare", "bare attention: no residual, MLP or LayerNorm (Figure 2)"),
    ):
        _FAMILIES[f"{_name}-{_embedding}"] = (
            f"minimal first layer (Eq. {_equation}), then {_then}",
            {"n_layers": 1, "block": _block, "embedding": _embedding},
        )
for _name, (_summary, _defaults) in _FAMILIES.items():
    models.register(_name, _summary)(_family(_name, _defaults))
