"""The public names: type checkers read this file, and so does `tl_dyck` when it is imported.

To add a name, add a line: ``from MODULE import NAME as NAME``; what comes from `tl_dyck` itself
is a subpackage.
"""

from tl_dyck import ablation as ablation
from tl_dyck import certify as certify
from tl_dyck import judge as judge
from tl_dyck import language as language
from tl_dyck import models as models
from tl_dyck import probes as probes
from tl_dyck import report as report
from tl_dyck import rnn as rnn
from tl_dyck import runs as runs
from tl_dyck import studies as studies
from tl_dyck import tasks as tasks
from tl_dyck import training as training
from tl_dyck.ablation import FinetuneConfig as FinetuneConfig
from tl_dyck.ablation import compare_importance as compare_importance
from tl_dyck.ablation import finetuned_importance as finetuned_importance
from tl_dyck.ablation import frozen_importance as frozen_importance
from tl_dyck.ablation import gradient_importance as gradient_importance
from tl_dyck.ablation import leave_one_out_importance as leave_one_out_importance
from tl_dyck.ablation import measure_heads as measure_heads
from tl_dyck.certify import certify_dyck as certify_dyck
from tl_dyck.certify import certify_edits as certify_edits
from tl_dyck.certify import parse_space as parse_space
from tl_dyck.certify.edit_proofs import prove_edits as prove_edits
from tl_dyck.certify.language import certify_language as certify_language
from tl_dyck.certify.language import sample_error as sample_error
from tl_dyck.certify.language_proofs import prove_language as prove_language
from tl_dyck.certify.protocol import register_certifier as register_certifier
from tl_dyck.certify.space_parser import register_transformation as register_transformation
from tl_dyck.certify.verbs import check as check
from tl_dyck.certify.verbs import decide as decide
from tl_dyck.certify.verbs import edits as edits
from tl_dyck.certify.verbs import prefixes as prefixes
from tl_dyck.certify.verbs import prove as prove
from tl_dyck.certify.verbs import sample as sample
from tl_dyck.judge import head_truths as head_truths
from tl_dyck.judge import judge_method as judge_method
from tl_dyck.judge import minimal_circuit as minimal_circuit
from tl_dyck.judge.protocol import register_method as register_method
from tl_dyck.judge.public import cases as cases
from tl_dyck.kit import registry as registry
from tl_dyck.kit.errors import DyckError as DyckError
from tl_dyck.kit.registry import Registry as Registry
from tl_dyck.kit.registry import RegistryError as RegistryError
from tl_dyck.kit.registry import UnknownNameError as UnknownNameError
from tl_dyck.language import DyckDistribution as DyckDistribution
from tl_dyck.language import DyckLanguage as DyckLanguage
from tl_dyck.language import DyckStringError as DyckStringError
from tl_dyck.language import NoStackError as NoStackError
from tl_dyck.language import SymbolLanguage as SymbolLanguage
from tl_dyck.language import Vocabulary as Vocabulary
from tl_dyck.language import VocabularyError as VocabularyError
from tl_dyck.language import VocabularyWarning as VocabularyWarning
from tl_dyck.language import build_tokenizer as build_tokenizer
from tl_dyck.language import read_strings as read_strings
from tl_dyck.models import DyckTransformer as DyckTransformer
from tl_dyck.models import DyckTransformerConfig as DyckTransformerConfig
from tl_dyck.models import adopt as adopt
from tl_dyck.models import build_model as build_model
from tl_dyck.models import construct as construct
from tl_dyck.models import get_config as get_config
from tl_dyck.models import list_models as list_models
from tl_dyck.models import load_model as load_model
from tl_dyck.models import save_model as save_model
from tl_dyck.models.arena import load_arena as load_arena
from tl_dyck.models.bridge import as_bridge as as_bridge
from tl_dyck.models.families import register_model as register_model
from tl_dyck.probes import register_probe as register_probe
from tl_dyck.probes.balance import balance_violation as balance_violation
from tl_dyck.probes.drift import pair_drift as pair_drift
from tl_dyck.probes.length import accuracy_at_length as accuracy_at_length
from tl_dyck.probes.likeness import stack_likeness as stack_likeness
from tl_dyck.probes.variation import attention_variation as attention_variation
from tl_dyck.reading import interventions as interventions
from tl_dyck.report import widgets as widgets
from tl_dyck.report import write_playground as write_playground
from tl_dyck.report import write_report as write_report
from tl_dyck.rnn import TwoLayerRNN as TwoLayerRNN
from tl_dyck.rnn import export_rnn as export_rnn
from tl_dyck.rnn import load_rnn as load_rnn
from tl_dyck.runs import run_sweep as run_sweep
from tl_dyck.runs.experiments import register_experiment as register_experiment
from tl_dyck.runs.saved import load_pretrained as load_pretrained
from tl_dyck.studies import StudyConfig as StudyConfig
from tl_dyck.studies import run_study as run_study
from tl_dyck.studies.reproduction import reproduce as reproduce
from tl_dyck.tasks import AutomatonTask as AutomatonTask
from tl_dyck.tasks import DyckTask as DyckTask
from tl_dyck.tasks import Task as Task
from tl_dyck.tasks import accuracy_on as accuracy_on
from tl_dyck.tasks import counted_accuracy as counted_accuracy
from tl_dyck.tasks import list_tasks as list_tasks
from tl_dyck.tasks import load_task as load_task
from tl_dyck.tasks import nats_over_law as nats_over_law
from tl_dyck.tasks.names import register_task as register_task
from tl_dyck.training import ContrastiveRegularizer as ContrastiveRegularizer
from tl_dyck.training import TrainConfig as TrainConfig
from tl_dyck.training import TrainResult as TrainResult
from tl_dyck.training import train as train
from tl_dyck.training import train_seeds as train_seeds

__version__: str
__all__: list[str]

def __dir__() -> list[str]: ...
