"""The main job: train several families over several seeds, measure everything, keep the results."""

from tl_dyck.study.config import StudyConfig
from tl_dyck.study.findings import findings
from tl_dyck.study.results import Study, load_study
from tl_dyck.study.run import run_study

__all__ = ["Study", "StudyConfig", "findings", "load_study", "run_study"]
