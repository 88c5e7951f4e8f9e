"""Small models of many kinds, random in every weight, in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases import draw_normal, hooked_config
from tl_dyck.ablation import FinetuneConfig
from tl_dyck.models import build_model, get_config
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.studies.ablation import AblateConfig, Ablation, ablate_trained
from tl_dyck.training import TrainConfig

SMALL = FinetuneConfig(penalties=(0.1, 0.2), steps=2, batch_size=4, n_eval=6)
CONFIG = AblateConfig(finetune=SMALL, leave_one_out=SMALL, n=12)

#: What differs from a plain GPT-2 of two layers and three heads.
PLAIN: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "no positions by table": {"positional_embedding_type": "rotary", "rotary_dim": 4},
    "relative to the end": {"positional_embedding_type": "shortformer"},
    "parallel": {"parallel_attn_mlp": True},
    "attention only": {"attn_only": True},
    "grouped": {"n_heads": 4, "n_key_value_heads": 2},
    "local": {"use_local_attn": True, "attn_types": ["global", "local"], "window_size": 3},
    "results": {"use_attn_result": True, "use_split_qkv_input": True},
    "bidirectional": {"attention_dir": "bidirectional"},
    "sinks": {"use_attention_sinks": True},
    "soft cap": {"attn_scores_soft_cap": 2.0},
    "scale by layer": {"scale_attn_by_inverse_layer_idx": True},
    "query and key norm": {"use_qk_norm": True, "normalization_type": "RMS"},
}
DYCK: dict[str, dict[str, Any]] = {
    "gpt-linear": {"n_layers": 3, "n_heads": 2},
    "eq6": {"n_heads": 2},
    "figure2-onehot": {"n_heads": 3},
    "minimal-split": {"n_heads": 2},
    "gpt-uniform": {"n_heads": 2},
}


def plain_model(*, seed: int = 0, **options: Any) -> Any:
    """A HookedTransformer that is none of ours."""
    values = {
        "n_layers": 2,
        "n_heads": 3,
        "d_model": 12,
        "d_head": 4,
        "d_vocab": 7,
        "n_ctx": 9,
        **options,
    }
    values = {
        "act_fn": "gelu_new",
        "normalization_type": "LN",
        "init_weights": False,
        "dtype": torch.float64,
        **values,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        return draw_normal(HookedTransformer(hooked_config(device="cpu", **values)), seed, 0.4)


def dyck_model(
    family: str = "gpt", *, seed: int = 0, task: str = "dyck-2-4", **options: Any
) -> Any:
    """One of ours."""
    values = {"dtype": torch.float64, "n_ctx": 40, "d_model": 24, "device": "cpu", **options}
    return draw_normal(build_model(get_config(family, task, **values)), seed, 0.4)


def make_any(name: str) -> Any:
    """One of the models named above."""
    return plain_model(**PLAIN[name]) if name in PLAIN else dyck_model(name, **DYCK[name])


@pytest.fixture(params=[*PLAIN, *DYCK])
def any_model(request: pytest.FixtureRequest) -> Any:
    return make_any(request.param)


@pytest.fixture
def tokens_for() -> Callable[..., torch.Tensor]:
    """Random tokens that a model can read."""

    def make(model: Any, batch: int = 5, length: int = 8, seed: int = 3) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        if hasattr(model, "language"):
            language = model.language
            strings = [
                torch.randint(language.bos_token, (length - 1,), generator=generator)
                for _ in range(batch)
            ]
            return torch.stack(
                [torch.cat([torch.tensor([language.bos_token]), text]) for text in strings]
            )
        return torch.randint(model.cfg.d_vocab, (batch, length), generator=generator)

    return make


@pytest.fixture(scope="session")
def ablation(tmp_path_factory: pytest.TempPathFactory) -> Ablation:
    """A tiny experiment: one depth, two tasks, two seeds."""
    return experiment(tmp_path_factory.mktemp("experiment"))


def experiment(folder: Path) -> Ablation:
    return ablate_trained(
        folder,
        seeds=(0, 3),
        layers=(1,),
        n_heads=3,
        d_model=9,
        training=TrainConfig(steps=5, check_every=5, check_size=10, batch_size=4),
        config=CONFIG,
        n_jobs=1,
        progress=False,
    )
