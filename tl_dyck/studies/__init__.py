"""The main job: train several families over several seeds, measure everything, keep the results.

Knows: what a run trains and measures, how its table is read, how claims are judged.
Does not know: pages, and any paper (`tl_dyck.report`, `tl_dyck_papers`).
"""

from tl_dyck.studies.config import StudyConfig
from tl_dyck.studies.findings import findings
from tl_dyck.studies.measurement import Measurement
from tl_dyck.studies.results import Study, load_study
from tl_dyck.studies.run import run_study
from tl_dyck.studies.train import TrainExperiment

__all__ = [
    "Measurement",
    "Study",
    "StudyConfig",
    "TrainExperiment",
    "findings",
    "load_study",
    "run_study",
]
