"""Models for bounded Dyck languages: real HookedTransformers where TransformerLens has them.

Knows: families, configurations, embeddings, weights on disk, models that users bring.
Does not know: how models are trained, or kept by the thousand (`tl_dyck.training`, `tl_dyck.runs`).

The only folder that imports TransformerLens' model class; `tl_dyck.models.hooked` is the only place
that knows which TransformerLens is installed.
"""

# First of all, for it says which TransformerLens is needed if it is another.
import tl_dyck.models.hooked.installed  # noqa: F401

# isort: split
from tl_dyck.models import construct
from tl_dyck.models.adoption import adopt
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.families import config_for, get_config, list_models, models
from tl_dyck.models.lean import lean_logits
from tl_dyck.models.storage import load_model, save_model
from tl_dyck.models.transformer import DyckTransformer, build_model

__all__ = [
    "DyckTransformer",
    "DyckTransformerConfig",
    "adopt",
    "build_model",
    "config_for",
    "construct",
    "get_config",
    "lean_logits",
    "list_models",
    "load_model",
    "models",
    "save_model",
]
