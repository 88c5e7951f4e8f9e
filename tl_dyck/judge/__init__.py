"""Methods of interpretability, judged by models of which the truth is known.

Knows: cases and what is true of them, questions, scores of methods.
Does not know: kinds of models and methods (`tl_dyck_hooks`), and pages (`tl_dyck.report`).

    from tl_dyck.judge import judge_method, score_heads

    @score_heads(above=0.5)
    def my_method(case):
        return [[score(case.model, layer, head) for head in heads] for layer, heads in ...]

    print(judge_method(my_method))

A *case* is a model and its task, made from a seed (`make_case`) by a *kind* of model, which is a
plug (`register_kind`); a *fact* is a question about it and the answer, which is proved, or computed
on every prefix of a small language (`facts`). A *method* is one function (`protocol`) that says
what it answers (`declarations`), scored by `judge_method`, or with all others by ``tl-dyck judge``.
Called, this module is `judge_method`.
"""

from tl_dyck.judge.across import rank_correlations
from tl_dyck.judge.cases import CaseKind, list_kinds, make_case, register_kind
from tl_dyck.judge.compare import compare_methods
from tl_dyck.judge.declarations import (
    combine_methods,
    declare_method,
    find_directions,
    score_brackets,
    score_edges,
    score_heads,
    table_of_methods,
)
from tl_dyck.judge.minimal import MinimalCircuit, minimal_circuit
from tl_dyck.judge.protocol import (
    ABOUT_HEADS,
    CHEATS,
    CONTROLS,
    CONVERGED,
    KINDS,
    Case,
    Fact,
    JudgeError,
    Method,
    Question,
    Scores,
    WithError,
    methods,
    register_method,
)
from tl_dyck.judge.public import JudgedCase, SuiteFile, make_suite, open_suite
from tl_dyck.judge.run import Judgement, judge_methods, load_judgement
from tl_dyck.judge.scores import judge, judge_method, score_table
from tl_dyck.judge.suites import SUITES, Suite
from tl_dyck.judge.truths import HeadTruths, head_truths
from tl_dyck.judge.tuning import Tuned, tune_methods
from tl_dyck.kit.face import make_callable

__all__ = [
    "ABOUT_HEADS",
    "CHEATS",
    "CONTROLS",
    "CONVERGED",
    "KINDS",
    "SUITES",
    "Case",
    "CaseKind",
    "Fact",
    "HeadTruths",
    "JudgeError",
    "JudgedCase",
    "Judgement",
    "Method",
    "MinimalCircuit",
    "Question",
    "Scores",
    "Suite",
    "SuiteFile",
    "Tuned",
    "WithError",
    "combine_methods",
    "compare_methods",
    "declare_method",
    "find_directions",
    "head_truths",
    "judge",
    "judge_method",
    "judge_methods",
    "list_kinds",
    "load_judgement",
    "make_case",
    "make_suite",
    "methods",
    "minimal_circuit",
    "open_suite",
    "rank_correlations",
    "register_kind",
    "register_method",
    "score_brackets",
    "score_edges",
    "score_heads",
    "score_table",
    "table_of_methods",
    "tune_methods",
]

make_callable(__name__, judge_method)
