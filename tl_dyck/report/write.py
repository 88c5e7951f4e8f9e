"""The page of whatever can be looked at, by its type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tl_dyck.judge.run import Judgement
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import write_bytes, write_output
from tl_dyck.report.heads import ablation_page
from tl_dyck.report.judge import judge_markdown, judge_page
from tl_dyck.report.judge_tasks import tasks_markdown
from tl_dyck.report.markup import Html
from tl_dyck.report.page import page_file
from tl_dyck.report.paper import claims_markdown, paper_page
from tl_dyck.report.study import study_page
from tl_dyck.report.sweep import sweep_page
from tl_dyck.runs import SweepStatus
from tl_dyck.studies import Study
from tl_dyck.studies.ablation import Ablation
from tl_dyck.studies.reproduction import Reproduction


@runtime_checkable
class HasPage(Protocol):
    """Results of another package that bring their page along."""

    @property
    def folder(self) -> Path:
        """Where the page is written, unless another place is named."""

    @property
    def page_name(self) -> str:
        """Of its file."""

    def page(self) -> Html:
        """Make the page."""


#: What makes the page of a type, and the name of the file in its folder.
_PAGES: dict[type, tuple[Callable[[Any], Html], str]] = {
    Study: (study_page, "report.html"),
    Reproduction: (paper_page, "reproduce.html"),
    Ablation: (ablation_page, "ablation.html"),
    Judgement: (judge_page, "judge.html"),
    SweepStatus: (sweep_page, "sweep.html"),
}


@checked
def write_report(
    results: Study | Reproduction | Ablation | Judgement | SweepStatus | HasPage,
    path: str | Path | None = None,
) -> Path:
    """Write a page about results as one self-contained HTML file: no network, scripts inlined once.

    The same results give the same bytes. Beside the page of a reproduction stands ``claims.md``,
    its table as Markdown, and beside that of a judgement ``judge.md``.

    Args:
        results: a study (`run_study`, `load_study`), a reproduction of a paper's claims
            (`reproduce`, `load_reproduction`), an ablation (`ablate_runs`, `ablate_trained`,
            `load_ablation`), a judgement of methods (`judge_methods`, `load_judgement`), a sweep
            (`run_sweep`, `sweep_status`), or anything that has a page (`HasPage`), such as
            `tl_dyck_text.page.CertifiedSentences`.
        path: of the file; None for one in the folder of the results: ``report.html`` of a study,
            ``reproduce.html`` of a reproduction, ``ablation.html``, ``judge.html``, ``sweep.html``.

    Returns:
        The path.

    Raises:
        TypeError: there is no page of such results.
        CorruptFileError: a saved attention pattern is missing or damaged, or the folder holds no
            sweep any more.
        OSError: the file cannot be written.
    """
    found = _PAGES.get(type(results))
    if isinstance(results, HasPage):
        found = type(results).page, results.page_name
    if found is None:
        known = ", ".join(kind.__name__ for kind in (*_PAGES, HasPage))
        raise TypeError(
            f"there is no page of a {type(results).__name__}; write_report takes one of: {known}"
        )
    make, name = found
    target = page_file(results.folder / name if path is None else path, name)
    page = make(results)
    write_output(target, page.encode())
    if not target.is_file():  # a pipe or a device: there is no place beside it
        return target
    if isinstance(results, Judgement):
        text = tasks_markdown(results) or judge_markdown(results)
        write_bytes(target.with_name("judge.md"), text.encode())
    if isinstance(results, Reproduction):
        write_bytes(target.with_name("claims.md"), claims_markdown(results.claims).encode())
    return target
