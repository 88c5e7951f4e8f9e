"""Test interpretability claims about attention where the right answer is known: bounded Dyck languages.

Every public name is listed in `_EXPORTS` and imported when it is first used, so ``import tl_dyck`` itself
loads neither torch nor TransformerLens, and `tl_dyck.rnn` and `tl_dyck.certify` never load the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> "module" that defines it, or "module:attribute" where it has another name there.
# To add a name: one line here, one line under TYPE_CHECKING below (a test compares the two).
_EXPORTS = {
    # the language and its tasks
    "DyckLanguage": "tl_dyck.language",
    "DyckDistribution": "tl_dyck.language",
    "DyckStringError": "tl_dyck.language",
    "build_tokenizer": "tl_dyck.language",
    "DyckTask": "tl_dyck.tasks",
    "load_task": "tl_dyck.tasks",
    "list_tasks": "tl_dyck.tasks",
    # models
    "DyckTransformer": "tl_dyck.models",
    "DyckTransformerConfig": "tl_dyck.models",
    "get_config": "tl_dyck.models",
    "build_model": "tl_dyck.models",
    "list_models": "tl_dyck.models",
    "save_model": "tl_dyck.models",
    "load_model": "tl_dyck.models",
    "construct": "tl_dyck.models",
    # training
    "TrainConfig": "tl_dyck.training",
    "TrainResult": "tl_dyck.training",
    "train": "tl_dyck.training",
    "train_seeds": "tl_dyck.training",
    "ContrastiveRegularizer": "tl_dyck.training",
    # probes (this file is the only one of the library that names the package of plugs)
    "attention_variation": "tl_dyck_hooks.probes",
    "balance_violation": "tl_dyck_hooks.probes",
    "stack_likeness": "tl_dyck_hooks.probes",
    # which heads matter
    "FinetuneConfig": "tl_dyck.ablation",
    "compare_importance": "tl_dyck.ablation",
    "finetuned_importance": "tl_dyck.ablation",
    "frozen_importance": "tl_dyck.ablation",
    "gradient_importance": "tl_dyck.ablation",
    "leave_one_out_importance": "tl_dyck.ablation",
    "measure_heads": "tl_dyck.ablation",
    # the two-layer RNN
    "TwoLayerRNN": "tl_dyck.rnn",
    "export_rnn": "tl_dyck.rnn",
    "load_rnn": "tl_dyck.rnn",
    # certificates
    "certify_dyck": "tl_dyck.certify",
    "parse_space": "tl_dyck.certify",
    # whatever is many runs, and its page
    "StudyConfig": "tl_dyck.studies",
    "run_study": "tl_dyck.studies",
    "reproduce": "tl_dyck.studies.paper",
    "run_sweep": "tl_dyck.runs",
    "write_report": "tl_dyck.report",
    # plugging in one's own
    "Registry": "tl_dyck.registry",
    "RegistryError": "tl_dyck.registry",
    "UnknownNameError": "tl_dyck.registry",
    "register_task": "tl_dyck.tasks:tasks.register",
    "register_model": "tl_dyck.models:models.register",
    "register_probe": "tl_dyck.probes:probes.register",
    "register_certifier": "tl_dyck.certify:certifiers.register",
    "register_transformation": "tl_dyck.certify.parsing:transformations.register",
    "register_experiment": "tl_dyck.runs.experiments:experiments.register",
}

# Subpackages that ``import tl_dyck; tl_dyck.rnn`` reaches without a second import statement.
_SUBMODULES = (
    "ablation",
    "certify",
    "language",
    "models",
    "probes",
    "registry",
    "report",
    "rnn",
    "runs",
    "studies",
    "tasks",
    "text",
    "training",
)

if TYPE_CHECKING:
    from tl_dyck.ablation import FinetuneConfig as FinetuneConfig
    from tl_dyck.ablation import compare_importance as compare_importance
    from tl_dyck.ablation import finetuned_importance as finetuned_importance
    from tl_dyck.ablation import frozen_importance as frozen_importance
    from tl_dyck.ablation import gradient_importance as gradient_importance
    from tl_dyck.ablation import leave_one_out_importance as leave_one_out_importance
    from tl_dyck.ablation import measure_heads as measure_heads
    from tl_dyck.certify import certifiers as _certifiers
    from tl_dyck.certify import certify_dyck as certify_dyck
    from tl_dyck.certify import parse_space as parse_space
    from tl_dyck.certify.parsing import transformations as _transformations
    from tl_dyck.language import DyckDistribution as DyckDistribution
    from tl_dyck.language import DyckLanguage as DyckLanguage
    from tl_dyck.language import DyckStringError as DyckStringError
    from tl_dyck.language import build_tokenizer as build_tokenizer
    from tl_dyck.models import DyckTransformer as DyckTransformer
    from tl_dyck.models import DyckTransformerConfig as DyckTransformerConfig
    from tl_dyck.models import build_model as build_model
    from tl_dyck.models import construct as construct
    from tl_dyck.models import get_config as get_config
    from tl_dyck.models import list_models as list_models
    from tl_dyck.models import load_model as load_model
    from tl_dyck.models import models as _models
    from tl_dyck.models import save_model as save_model
    from tl_dyck.probes import probes as _probes
    from tl_dyck.registry import Registry as Registry
    from tl_dyck.registry import RegistryError as RegistryError
    from tl_dyck.registry import UnknownNameError as UnknownNameError
    from tl_dyck.report import write_report as write_report
    from tl_dyck.rnn import TwoLayerRNN as TwoLayerRNN
    from tl_dyck.rnn import export_rnn as export_rnn
    from tl_dyck.rnn import load_rnn as load_rnn
    from tl_dyck.runs import run_sweep as run_sweep
    from tl_dyck.runs.experiments import experiments as _experiments
    from tl_dyck.studies import StudyConfig as StudyConfig
    from tl_dyck.studies import run_study as run_study
    from tl_dyck.studies.paper import reproduce as reproduce
    from tl_dyck.tasks import DyckTask as DyckTask
    from tl_dyck.tasks import list_tasks as list_tasks
    from tl_dyck.tasks import load_task as load_task
    from tl_dyck.tasks import tasks as _tasks
    from tl_dyck.training import ContrastiveRegularizer as ContrastiveRegularizer
    from tl_dyck.training import TrainConfig as TrainConfig
    from tl_dyck.training import TrainResult as TrainResult
    from tl_dyck.training import train as train
    from tl_dyck.training import train_seeds as train_seeds
    from tl_dyck_hooks.probes import attention_variation as attention_variation
    from tl_dyck_hooks.probes import balance_violation as balance_violation
    from tl_dyck_hooks.probes import stack_likeness as stack_likeness

    register_task = _tasks.register
    register_model = _models.register
    register_probe = _probes.register
    register_certifier = _certifiers.register
    register_transformation = _transformations.register
    register_experiment = _experiments.register

__all__ = sorted(_EXPORTS)


if not TYPE_CHECKING:  # type checkers would take it as "every name exists", and miss typos

    def __getattr__(name: str) -> Any:
        """Import a public name or subpackage on first use."""
        from importlib import import_module
        from operator import attrgetter

        if name in _EXPORTS:
            module, _, path = _EXPORTS[name].partition(":")
            value = attrgetter(path or name)(import_module(module))
        elif name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")  # the import system itself sets the attribute
        else:
            raise _no_attribute(name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List what tab completion should offer, loaded or not."""
    return sorted({*globals(), *_EXPORTS, *_SUBMODULES} - {"TYPE_CHECKING", "Any", "annotations"})


def _no_attribute(name: str) -> AttributeError:
    """Build the error for a name that is not there, with the nearest one that is."""
    from difflib import get_close_matches

    near = get_close_matches(name, [*_EXPORTS, *_SUBMODULES], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; see dir(tl_dyck) for what there is"
    # obj=None: the interpreter would otherwise append a suggestion of its own to the traceback.
    return AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=None)
