"""Arguments that are right, for every public function: by the name of a parameter, or by both."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import tl_dyck
from tl_dyck import certify, construct, interventions, judge, runs, studies
from tl_dyck.certify import language as decided
from tl_dyck_text.certificates import certify_sentences
from tl_dyck_text.corpus import Corpus, Sentence, build_words
from tl_dyck_text.edits import text_space
from tl_dyck_text.model import TextConfig, build_text_model
from tl_dyck_text.recipe import TextRecipe
from tl_dyck_text.study import SentencesExperiment, SentencesMeasurement
from tl_dyck_text.training import TextTraining


class Stop(Exception):
    """Raised where the work of a slow function begins: its arguments were taken."""


def stop(*_: Any, **__: Any) -> Any:
    raise Stop


@cache
def task() -> Any:
    return tl_dyck.DyckTask(
        name="small", n_types=2, max_depth=2, train_lengths=(2, 4), long_lengths=(6, 8)
    )


@cache
def language() -> Any:
    return task().language


def strings_file() -> Path:
    file = Path(tempfile.mkdtemp(), "strings.txt")
    file.write_text("[]\n")
    return file


@cache
def config() -> Any:
    return tl_dyck.get_config("gpt", task(), n_layers=1, n_heads=2, d_model=8, n_ctx=20)


@cache
def model() -> Any:
    return tl_dyck.build_model(config())


@cache
def minimal() -> Any:
    return tl_dyck.build_model(tl_dyck.get_config("minimal-onehot", task()))


@cache
def uniform() -> Any:
    return construct.uniform_attention(language(), n_ctx=20)


@cache
def rnn() -> Any:
    return tl_dyck.export_rnn(uniform())


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp())


@cache
def saved() -> Path:
    return Path(tl_dyck.save_model(minimal(), folder() / "model"))


@cache
def saved_rnn() -> Path:
    return Path(tl_dyck.rnn.save_rnn(rnn(), folder() / "rnn"))


@cache
def proof_file() -> Path:
    return tl_dyck.prove_language(uniform(), task(), 2).save(folder() / "small.proof")


def one_case(kind: str, seed: int, given: Any) -> Any:
    return case()[0], []


def tosses(point: Any, seed: int, folder: Path) -> dict[str, float]:
    return {"heads": point["n"] + seed}


@cache
def sweep() -> Any:
    return runs.Sweep(grid={"n": [1, 2]}, seeds=2, experiment="arguments-tosses")


@cache
def swept() -> Path:
    path = folder() / "sweep"
    runs.run_sweep(sweep(), path, experiment=tosses, n_jobs=1, progress=False)
    return path


@cache
def study() -> Any:
    options = tl_dyck.TrainConfig(
        steps=6, batch_size=4, check_every=3, check_size=8, min_steps=3, target=0.01
    )
    measured = studies.Measurement(
        n_accuracy=8, n_long=4, n_strings=8, n_certified=1, n_inserted=1, decided_length=2
    )
    config = tl_dyck.StudyConfig(
        families=("gpt", "minimal-onehot"), seeds=(0, 1), training=options, measurement=measured,
        n_bootstrap=10,
    )  # fmt: skip
    return tl_dyck.run_study(config, folder() / "study", n_jobs=1, progress=False)


@cache
def trained() -> Any:
    return study().run("gpt", 0)


@cache
def automaton() -> Any:
    return tl_dyck.AutomatonTask(**AUTOMATON)


AUTOMATON: dict[str, Any] = {
    "name": "pairs",
    "symbols": ("a", "b"),
    "start": "even",
    "moves": lambda state: {"a": "odd"} if state == "even" else {"b": "even"},
    "ends": lambda state: state == "even",
    "train_lengths": (2, 4),
    "long_lengths": (6, 8),
}

CONFIG = {
    "d_model": 8, "n_layers": 1, "n_ctx": 20, "n_heads": 2, "d_head": 4, "n_types": 2,
    "max_depth": 2,
}  # fmt: skip

SENTENCES = (Sentence("a good film", 1), Sentence("a bad film", 0))


@cache
def words() -> Any:
    return TextConfig(words=build_words(SENTENCES), d_model=4)


@cache
def reader() -> Any:
    return build_text_model(words())


@cache
def word_space() -> Any:
    return text_space("dup:1", words(), {})


@cache
def batch_edits() -> Any:
    from tl_dyck_text.edits import BatchEdits

    return BatchEdits.of(word_space(), words())


@cache
def corpus_folder() -> Path:
    path = folder() / "corpus"
    path.mkdir()
    lines = "a good film\t1\na bad film\t0\n"
    for name in ("train.tsv", "dev.tsv"):
        (path / name).write_text(lines)
    (path / "synonyms.json").write_text('{"good": ["fine"]}')
    return path


@cache
def sentence_certificates() -> Any:
    return certify_sentences(reader(), SENTENCES, word_space())


@cache
def certified_sweep() -> Path:
    """Of one classifier, in a step."""
    common = {"data": str(corpus_folder()), "training.steps": 1, "measure.spaces": ["dup:1"]}
    one = runs.Sweep(experiment="sentences", seeds=1, common=common)
    path = folder() / "sentences"
    runs.run_sweep(one, path, n_jobs=1, progress=False)
    return path


@cache
def case() -> tuple[Any, Any]:
    return judge.make_case("uniform", 0)


def tiny_suite() -> Any:
    return judge.Suite(name="s", first_seed=0, sizes={"uniform": 1})


@cache
def suite_file() -> Any:
    path = folder() / "s.suite"
    judge.make_suite(tiny_suite(), path, n_jobs=1, progress=False)
    return path


@cache
def judged() -> Any:
    """Rows of answers, as they are kept."""
    from tl_dyck.judge.cases import sealed_case
    from tl_dyck.judge.scores import ask

    rows = ask("sure", sure, sealed_case("uniform", 0))
    return pd.DataFrame(rows).assign(method="sure")


@cache
def judgement() -> Any:
    return judge.Judgement(
        folder=folder(), suite="quick", answers=judged(), scores=judge.score_table(judged()),
        environment={},
    )  # fmt: skip


@cache
def space() -> Any:
    return certify.PerturbationSpace([(certify.SwapAdjacent(), 1)])


@cache
def asker() -> Any:
    return certify.Asker(rnn())


@cache
def certificate() -> Any:
    return certify.certify(rnn(), "[]", None, space())


@cache
def heads() -> Any:
    return tl_dyck.measure_heads(model(), tokens(), modes=("zero", "gradient"), n=4)[0]


@cache
def pruned() -> tuple[Any, Any]:
    """A target with small weights, and a network that it is found in."""
    fields = {"n_layers": 1, "d_model": 4, "d_mlp": 4, "d_head": 2, "n_ctx": 8, "ln_c": 0.5}
    config = tl_dyck.get_config("eq6", task(), dtype=torch.float64, **fields)
    target = tl_dyck.build_model(config)
    with torch.no_grad():
        for weight in target.parameters():
            weight.copy_(torch.rand(weight.shape, generator=generator()) * 0.2)
    return target, construct.random_network(target, items=6, scale=3.0)


@cache
def tokens() -> torch.Tensor:
    return task().sample(4, seed=0)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def metric(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return logits[:, -1, 0]


def registry() -> Any:
    found: Any = tl_dyck.Registry("thing", "tl_dyck.things")
    found.register("text")(abs)
    return found


def silent(share: float) -> None:
    """What a bar of progress would be told."""


def vector() -> torch.Tensor:
    return torch.zeros(1, rnn().config.d_model, dtype=torch.float64)


def foreign() -> Any:
    """A model of another package's class, with our ids."""
    from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

    plain = HookedTransformerConfig(
        n_layers=1, n_heads=1, d_model=4, d_head=4, n_ctx=10, d_vocab=5, act_fn="relu", seed=0
    )
    return HookedTransformer(plain)


@cache
def arena_file() -> Path:
    from tests.models.test_arena import random_state

    path = folder() / "arena.pt"
    torch.save(random_state(), path)
    return path


_names = itertools.count()


def fresh() -> str:
    return f"arguments-{next(_names)}"


def short() -> Any:
    return tl_dyck.TrainConfig(steps=1, batch_size=2, check_size=4, check_every=1)


def sure(case: Any, questions: Any) -> list[float]:
    return [1.0] * len(questions)


def always(n: int) -> Any:
    return sure


def largest(case: Any) -> list[list[float]]:
    return [[1.0] * case.model.cfg.n_heads] * case.model.cfg.n_layers


#: By the name of a parameter.
COMMON: dict[str, Callable[[], Any]] = {
    "model": model,
    "model_or_rnn": uniform,
    "rnn_or_model": rnn,
    "rnn": rnn,
    "before": model,
    "after": model,
    "models": lambda: [model(), model()],
    "task": task,
    "language": language,
    "distribution": lambda: task().distribution,
    "data": tokens,
    "tokens": tokens,
    "candidate": lambda: (0, 1),
    "text": lambda: "[]",
    "string": lambda: "[]",
    "n": lambda: 4,
    "chunk": lambda: 2,
    "length": lambda: 4,
    "lengths": lambda: 4,
    "longest": lambda: 4,
    "seed": lambda: 0,
    "generator": generator,
    "n_bootstrap": lambda: 10,
    "options": lambda: tl_dyck.FinetuneConfig(penalties=(0.1,), steps=1, batch_size=2, n_eval=4),
    "space": space,
    "target": lambda: None,
    "targets": lambda: None,
    "strings": lambda: ["[]"],
    "folder": folder,
    "path": lambda: folder() / "page.html",
    "progress": lambda: False,
    "config": config,
    "layer": lambda: 0,
    "head": lambda: 0,
    "layers": lambda: [0],
    "logits": lambda: torch.zeros(*tokens().shape, language().d_vocab),
    "sentences": lambda: SENTENCES,
    "share": lambda: 0.5,
    "family": lambda: "gpt",
    "n_ctx": lambda: 20,
    "kind": lambda: "uniform",
    "name": lambda: "text",
    "named": lambda: "text",
    "point": lambda: {"task": "dyck-2-4", "model": "gpt"},
    "theme": lambda: "dark",
    "results": study,
    "study": study,
    "edits": lambda: (),
    "symbols": lambda: certify.Symbols(language().alphabet),
    "mode": lambda: "prefix",
}

#: By both: what a name alone does not say.
OF: dict[str, dict[str, Callable[[], Any]]] = {
    "AutomatonTask": {name: (lambda value=value: value) for name, value in AUTOMATON.items()}
    | {"places": lambda: None, "asked": lambda: None},
    "tasks.addition_task": {"digits": lambda: 2, "written": lambda: "a+b=s"},
    "AutomatonTask.counted_positions": {"tokens": lambda: torch.tensor([[2, 0, 1]])},
    "AutomatonTask.next_token_probs": {"tokens": lambda: torch.tensor([[2, 0, 1]])},
    "read_strings": {"file": strings_file, "language": language},
    "accuracy_on": {"strings": lambda: ["[]"], "task": lambda: "dyck-2-4"},
    "language.StringList": {
        "language": language,
        "symbols": lambda: np.array([0, 1], dtype=np.uint16),
        "ends": lambda: np.array([2]),
    },
    "AutomatonTask.allowed": {"tokens": lambda: torch.tensor([[2, 0, 1]])},
    "AutomatonTask.states_of": {"tokens": lambda: torch.tensor([[2, 0, 1]])},
    "AutomatonTask.sample": {"seed": lambda: 0},
    "ContrastiveRegularizer.prefixed": {},
    "DyckLanguage": {"n_types": lambda: 2, "max_depth": lambda: 2},
    "DyckLanguage.to_string": {"tokens": lambda: torch.tensor([0, 1])},
    "DyckTask": {"name": lambda: "mine", "n_types": lambda: 2, "max_depth": lambda: 2},
    "DyckTask.sample": {"seed": lambda: 0},
    "DyckTransformer": {"cfg": config},
    "DyckTransformer.generate": {"input": lambda: "[", "max_new_tokens": lambda: 2},
    "DyckTransformer.to_tokens": {"input": lambda: "[]"},
    "DyckTransformerConfig.of_plain": {},
    "DyckTransformerConfig.from_saved": {"values": lambda: config().to_saved()},
    "FinetuneConfig": {},
    "FinetuneConfig.from_dict": {"values": dict},
    "DyckTransformerConfig": {name: (lambda value=value: value) for name, value in CONFIG.items()},
    "Registry.include": {"name": fresh, "item": lambda: abs, "summary": lambda: "a thing"},
    "Registry": {"kind": lambda: "thing", "group": lambda: "tl_dyck.things"},
    "StudyConfig.from_dict": {"values": dict},
    "SymbolLanguage": {"name": lambda: "ab", "symbols": lambda: ("a", "b")},
    "SymbolLanguage.check_tokens": {"tokens": lambda: torch.tensor([0, 1])},
    "SymbolLanguage.parse": {"text": lambda: "ab"},
    "SymbolLanguage.tokenize": {"text": lambda: "ab"},
    "SymbolLanguage.to_string": {"tokens": lambda: torch.tensor([0, 1])},
    "TrainConfig.from_dict": {"values": dict},
    "TwoLayerRNN": {"config": lambda: rnn().config, "weights": lambda: rnn().weights},
    "TwoLayerRNN.embed": {"tokens": lambda: torch.tensor([0]), "states": lambda: torch.tensor([1])},
    "TwoLayerRNN.last_logits": {"lengths": lambda: None},
    "TwoLayerRNN.next_state": {"state": lambda: rnn().start_state, "token": lambda: 4},
    "TwoLayerRNN.places": {"states": lambda: torch.tensor([1])},
    "TwoLayerRNN.query": {"r": vector},
    "TwoLayerRNN.scores": {
        "r": lambda: vector().reshape(1, 1, -1),
        "states": lambda: torch.tensor([[1]]),
    },
    "TwoLayerRNN.key": {"r": vector},
    "TwoLayerRNN.value": {"r": vector},
    "TwoLayerRNN.readout": {"r": vector, "z": lambda: rnn().value(vector())},
    "TwoLayerRNN.step": {"carry": lambda: rnn().initial(), "token": lambda: torch.tensor([4])},
    "TwoLayerRNN.to_str_tokens": {"tokens": lambda: torch.tensor([0, 1])},
    "TwoLayerRNN.to_string": {"tokens": lambda: torch.tensor([0, 1])},
    "Vocabulary": {"brackets": lambda: (0, 1, 2, 3), "bos": lambda: 4},
    "Vocabulary.of_tokenizer": {"tokenizer": lambda: model().tokenizer},
    "Vocabulary.orders": {"d_vocab": lambda: 5, "d_vocab_out": lambda: 5},
    "Vocabulary.order": {"d_vocab": lambda: 5},
    "accuracy_at_length": {"model": minimal},
    "adopt": {"model": foreign, "vocabulary": lambda: tl_dyck.Vocabulary.ours(language())},
    "balance_violation": {"model": minimal},
    "stack_likeness": {"data": tokens},
    "write_playground": {"progress": lambda: silent},
    "certify_language": {"progress": lambda: silent},
    "build_tokenizer": {},
    "check": {"file": proof_file},
    "decide": {"model": uniform, "strings": lambda: (task(), 4)},
    "edits": {"string": lambda: "[]", "space": lambda: "pairs:1"},
    "prefixes": {"task": task, "lengths": lambda: 4},
    "prove": {"model": uniform, "strings": lambda: tl_dyck.edits("[", "pairs:1")},
    "sample": {"model": uniform, "strings": lambda: (task(), [3])},
    "certify_edits": {"tokens": lambda: "[]"},
    "judge_method": {"method": lambda: sure, "suite": lambda: [("uniform", 0)]},
    "certify_dyck": {"length": lambda: 3, "n": lambda: 1, "budget": lambda: 1},
    "compare_importance": {"heads": lambda: [heads(), heads()]},
    "export_rnn": {"model": uniform},
    "get_config": {"name": lambda: "gpt"},
    "load_arena": {"path": arena_file},
    "load_model": {"folder": saved},
    "load_pretrained": {"name": saved},
    "load_rnn": {"folder": saved_rnn},
    "load_task": {"name": lambda: "dyck-2-4"},
    "head_truths": {"model": uniform, "length": lambda: 3},
    "minimal_circuit": {"model": uniform, "length": lambda: 3},
    "measure_heads": {"modes": lambda: ("zero",)},
    "pair_drift": {"model": minimal},
    "parse_space": {"text": lambda: "swap:1"},
    "prove_edits": {
        "tokens": lambda: "[",
        "space": lambda: certify.PerturbationSpace([(certify.Duplicate(), 1)]),
    },
    "register_certifier": {"name": fresh},
    "register_experiment": {"name": fresh},
    "register_method": {"name": fresh},
    "register_model": {"name": fresh},
    "register_probe": {"name": fresh},
    "register_task": {"name": fresh},
    "register_transformation": {"name": fresh},
    "reproduce": {"folder": folder},
    "run_study": {"config": lambda: study().config, "folder": lambda: folder() / "study"},
    "run_sweep": {
        "sweep": sweep,
        "folder": swept,
        "experiment": lambda: tosses,
        "n_jobs": lambda: 1,
    },
    "train": {"options": short, "folder": lambda: None},
    "train_seeds": {"seeds": lambda: 1, "options": short, "n_jobs": lambda: 1},
    "save_model": {"folder": lambda: folder() / "again", "model": minimal},
    "write_report": {"path": lambda: folder() / "study.html"},
    "ablation.attention_entropy": {"data": tokens},
    "ablation.ImportanceComparison.correlation": {
        "group": lambda: "all",
        "a": lambda: "zero",
        "b": lambda: "gradient",
    },
    "certify.Asker": {"model_or_rnn": rnn},
    "certify.Asker.of": {"model_or_rnn": rnn},
    "certify.Asker.read": {"tokens": lambda: "[]"},
    "certify.Asker.without_bos": {"tokens": lambda: "[]"},
    "certify.Asker.rnn_logits": {"string": lambda: (0, 1)},
    "certify.Asker.logits": {"string": lambda: (0, 1)},
    "certify.Asker.target": {"string": lambda: (0, 1)},
    "certify.Asker.answer": {
        "question": lambda: asker().question(space()),
        "tokens": lambda: "[]",
    },
    "certify.Certificate.with_symbols": {},
    "certify.Delete": {"words": lambda: (1,)},
    "certify.Insert": {"strings": lambda: ((0, 1),)},
    "certify.InsertMatchedPairs": {},
    "certify.Substitute": {"table": lambda: {0: (2,)}},
    "certify.PerturbationSpace": {"transformations": lambda: [(certify.SwapAdjacent(), 1)]},
    "certify.Resources": {},
    "certify.Resources.need": {"field": lambda: "language", "name": lambda: "pairs"},
    "certify.Symbols": {"alphabet": lambda: language().alphabet},
    "certify.Symbols.index": {"text": lambda: "["},
    "certify.Symbols.logit": {"target": lambda: 0},
    "certify.Symbols.read": {"text": lambda: "[]"},
    "certify.worst_logit_change": {"tokens": lambda: (0, 1)},
    "certify.apply_edits": {"tokens": lambda: (0, 1)},
    "certify.passages": {"tokens": lambda: (0, 1)},
    "certify.Symbols.words": {"tokens": lambda: (0, 1)},
    "certify.Symbols.text": {"tokens": lambda: (0, 1)},
    "certify.Edit.to_text": {"text": lambda: str},
    **{
        f"certify.PerturbationSpace.{name}": {
            "tokens": lambda: (0, 1),
            "lattice": lambda: space().lattice((0, 1)),
            "path": tuple,
            "limit": lambda: None,
        }
        for name in (
            *("contains", "edits", "edits_of", "enumerate", "lattice", "n_edit_paths"),
            *("sample", "size"),
        )
    },
    "certify.conclude": {
        "tokens": lambda: (0, 1),
        "target": lambda: 0,
        "certifier": lambda: "mine",
        "lower": lambda: -100.0,
        "string": lambda: None,
        "started": lambda: 0.0,
    },
    "certify.load_synonyms": {"file": lambda: corpus_folder() / "synonyms.json"},
    "certify.substitution_table": {
        "words": lambda: {"good": ["fine"]},
        "alphabet": lambda: ("good", "fine"),
    },
    "certify.word_space": {"tokenizer": lambda: model().tokenizer, "dup": lambda: 1},
    "certify.DyckCertificates.share": {"status": lambda: "proved"},
    "certify.WordSpace.translate": {"certificate": certificate},
    "interventions.Eraser.fit": {
        "x": lambda: torch.randn(20, 3, generator=generator()),
        "label": lambda: torch.arange(20) % 2,
        "n_labels": lambda: 2,
    },
    "interventions.Eraser.project_out": {
        "x": lambda: torch.zeros(2, 3, dtype=torch.float64),
        "matrix": lambda: torch.eye(3, dtype=torch.float64),
    },
    "interventions.align": {
        "answers": lambda: lambda basis: basis.sum() + torch.zeros(2, 3),
        "wanted": lambda: torch.tensor([0, 1]),
        "start": lambda: torch.eye(3)[:, :1],
        "steps": lambda: 1,
    },
    "interventions.change_activation": {
        "name": lambda: "blocks.0.hook_resid_pre",
        "change": lambda: abs,
    },
    "interventions.hide_keys": {"hidden": lambda: torch.zeros(4, 5, 5, dtype=torch.bool)},
    "interventions.interchange": {
        "basis": lambda: torch.eye(3)[:, :1],
        "source": lambda: torch.zeros(4, 3),
    },
    "interventions.key_of_each": {"key": lambda: torch.zeros(2, 3, dtype=torch.int64)},
    "interventions.key_of_one": {
        "query": lambda: torch.tensor([1]),
        "key": lambda: torch.tensor([0]),
    },
    "judge.Case": {
        "model": uniform,
        "length": lambda: 2,
        "task": task,
        "tokens": tokens,
    },
    "judge.Case.place": {"right": lambda: torch.tensor([[-1, 1]])},
    "judge.Case.difference": {
        "logits": lambda: torch.zeros(1, 2, 5),
        "right": lambda: torch.tensor([[-1, 1]]),
    },
    "judge.Case.forward": {
        "embeddings": lambda: torch.zeros(1, 2, case()[0].model.cfg.d_model, dtype=torch.float64),
    },
    "judge.Judgement.wide": {},
    "judge.Judgement.plot": {"own": lambda: "sure", "questions": lambda: "needed"},
    "judge.Judgement.to_latex": {"own": lambda: "sure", "questions": lambda: "needed"},
    "judge.HeadTruths.reads_top": {},
    "judge.CaseKind": {"make": lambda: one_case, "knobs": lambda: ("n",)},
    "judge.Suite": {"name": lambda: "mine", "sizes": lambda: {"uniform": 1}},
    "judge.Suite.with_salt": {"salt": lambda: "9f3c61d07be8a4523c0d95e7f18b6a24"},
    "judge.WithError": {"values": lambda: [1.0], "error": lambda: 0.0},
    "judge.rank_correlations": {"rows": judged},
    "judge.compare_methods": {"rows": judged, "method": lambda: "sure", "other": lambda: "sure"},
    "judge.combine_methods": {"*several": lambda: judge.score_heads(above=0.5)(largest)},
    "judge.declare_method": {"*kinds": lambda: "needed", "yes": lambda: "always"},
    "judge.judge_methods": {"folder": lambda: folder() / "judge"},
    "judge.make_case": {},
    "judge.make_suite": {
        "suite": lambda: tiny_suite(),
        "path": lambda: folder() / "a.suite",
        "**how": lambda: {"n_jobs": 1, "progress": False},  # no worker has to import all
    },
    "judge.open_suite": {"path": suite_file},
    "judge.SuiteFile.sealed": {"kind": lambda: "uniform", "seed": lambda: 0},
    "judge.Judgement.sealed": {"case": lambda: "uniform-0"},
    "judge.score_edges": {"above": lambda: 0.5},
    "judge.score_heads": {"above": lambda: 0.5},
    "judge.score_table": {"rows": judged},
    "judge.tune_methods": {
        "makers": lambda: {"sure": (always, {"n": [1, 2]})},
        "cases": lambda: [("uniform", 0)],
        "trials": lambda: 2,
    },
    "models.config_for": {},
    "models.construct.balanced": {},
    "models.construct.counter": {"max_depth": lambda: 1, "reads": lambda: "once"},
    "models.construct.decoy_head": {"pattern": lambda: "uniform"},
    "models.construct.prune_to": {
        "target": lambda: pruned()[0],
        "random_network": lambda: pruned()[1],
        "epsilon": lambda: 50.0,
    },
    "models.construct.random_network": {"*targets": lambda: pruned()[0]},
    "models.construct.satisfies_balance": {"model": uniform},
    "models.construct.balance_residual": {"model": uniform},
    "models.construct.twins": {
        "target_a": lambda: pruned()[0],
        "target_b": lambda: pruned()[0],
        "shared": lambda: "blocks.0.mlp.W_out",
        "epsilon": lambda: 50.0,
        "items": lambda: 6,
    },
    "probes.call_probe": {"name": lambda: "attention_variation"},
    "probes.load_probe": {"name": lambda: "stack_likeness"},
    "probes.takes_many": {"probe": lambda: tl_dyck.stack_likeness},
    "probes.variation_of_patterns": {"patterns": lambda: torch.zeros(2, 1, 1, 3, 3)},
    "report.widgets.balance_heatmap": {
        "result": lambda: tl_dyck.balance_violation(minimal()),
    },
    "report.widgets.certificate": {"cert": certificate},
    "report.widgets.circuitsvis_tokens": {"values": lambda: np.zeros((3, 1), dtype=np.float32)},
    "rnn.RNNConfig.from_dict": {"values": lambda: rnn().config.to_dict()},
    "errors.is_refusal": {"error": ValueError},
    "studies.Measurement.from_dict": {"values": dict},
    "text.TextRecipe.from_dict": {"values": lambda: {"data": str(corpus_folder())}},
    "text.TextTraining.from_dict": {"values": dict},
    "rnn.RNNConfig": {
        "d_model": lambda: 4,
        "n_heads": lambda: 1,
        "d_head": lambda: 4,
        "d_vocab": lambda: 5,
        "d_vocab_out": lambda: 5,
    },
    "rnn.save_rnn": {"folder": lambda: folder() / "rnn-again"},
    "rnn.weight_shapes": {"config": lambda: rnn().config},
    "runs.Sweep": {"seeds": lambda: 2, "common": dict},
    "runs.Sweep.from_dict": {"values": lambda: sweep().to_dict()},
    "runs.Sweep.with_settings": {"settings": lambda: {"n": [3]}},
    "runs.aggregate": {"results": lambda: runs.load_results(swept())},
    "runs.load_models": {"folder": lambda: study().folder},
    "runs.load_results": {"folder": swept},
    "runs.load_sweep": {"source": sweep},
    "runs.merge_sweeps": {"into": lambda: folder() / "merged", "folders": lambda: [swept()]},
    "runs.sweep_status": {"folder": swept},
    "runs.time_left": {"folder": swept},
    "studies.Measurement.measure": {"result": trained},
    "studies.load_study": {"folder": lambda: study().folder},
    "text.Attack": {"model": reader, "edits": batch_edits},
    "text.IntervalBound": {"model": reader, "edits": batch_edits},
    "text.Corpus": {
        "train": lambda: SENTENCES * 20,
        "test": lambda: SENTENCES,
        "problems": dict,
    },
    "text.CertifiedSentences": {"model": reader, "certificates": lambda: sentence_certificates()},
    "text.SentencesExperiment": {},
    "text.SentencesExperiment.prepare": {"point": lambda: {"data": str(corpus_folder())}},
    "text.SentencesMeasurement.from_dict": {"values": dict},
    "text.TextConfig": {"words": lambda: words().words},
    "text.TextConfig.from_dict": {"values": lambda: {"words": list(words().words)}},
    "text.TextTransformer": {"config": words},
    "text.sentences_table": {"folder": certified_sweep},
    "text.Sentence": {"text": lambda: "a film", "label": lambda: 1},
    "text.TextRecipe": {"data": lambda: str(corpus_folder())},
    "text.accuracy": {"model": reader},
    "text.certify_sentences": {"model": reader, "space": word_space},
    "text.load_corpus": {"data": lambda: str(corpus_folder())},
    "text.load_folder": {"folder": corpus_folder},
    "text.text_space": {
        "text": lambda: "dup:1",
        "config": words,
        "synonyms": lambda: {"good": ["fine"]},
    },
    "text.train_text": {
        "config": words,
        "space": word_space,
        "options": lambda: TextTraining(steps=1),
    },
    "training.DriftRegularizer.check": {"config": lambda: minimal().cfg},
    "training.load_result": {"folder": lambda: study().run_folder("gpt", 0)},
}

#: Those that are given though they have a default, so that less is done.
SMALL = ("n", "chunk", "n_bootstrap", "progress", "n_ctx", "lengths")

#: Where work begins that takes seconds: what is taken is not done again for every value.
STOPPED = {
    "finetuned_importance": "tl_dyck.ablation.tuning.Tuner.step",
    "leave_one_out_importance": "tl_dyck.ablation.leave_one_out._without",
    "reproduce": "tl_dyck.studies.reproduction.run_sweep",
    "run_study": "tl_dyck.studies.run.run_sweep",
    "train": "tl_dyck.training.loop._train",
    "train_seeds": "tl_dyck.training.seeds._train_groups",
    "judge.judge_methods": "tl_dyck.judge.run.run_sweep",
    "judge.make_case": "tl_dyck.judge.cases.sealed_case",
    "judge.make_suite": "tl_dyck.judge.public.run_sweep",
    "studies.Measurement.measure": "tl_dyck.studies.measurement.certify_dyck",
    "text.train_text": "tl_dyck_text.training.build_text_model",
}

#: What methods are called on, by class.
ON: dict[str, Callable[[], Any]] = {
    "AutomatonTask": automaton,
    "DyckTask": task,
    "DyckLanguage": language,
    "DyckDistribution": lambda: task().distribution,
    "DyckTransformer": model,
    "SymbolLanguage": lambda: tl_dyck.SymbolLanguage("ab", ("a", "b")),
    "Vocabulary": lambda: tl_dyck.Vocabulary.ours(language()),
    "TwoLayerRNN": rnn,
    "certify.Asker": asker,
    "certify.PerturbationSpace": space,
    "certify.Certificate": certificate,
    "studies.Study": study,
    "judge.Judgement": judgement,
    "judge.SuiteFile": lambda: judge.open_suite(suite_file()),
    "judge.Case": lambda: case()[0],
    "judge.Suite": lambda: judge.Suite(name="s", sizes={"uniform": 1}),
    "ContrastiveRegularizer": lambda: tl_dyck.ContrastiveRegularizer(language()),
    "DyckTransformerConfig": config,
    "FinetuneConfig": tl_dyck.FinetuneConfig,
    "TrainConfig": tl_dyck.TrainConfig,
    "StudyConfig": tl_dyck.StudyConfig,
    "TrainResult": trained,
    "Registry": registry,
    "ablation.FinetunedImportance": lambda: tl_dyck.finetuned_importance(
        model(), tokens(), options=COMMON["options"](), progress=False
    ),
    "ablation.HeadImportance": lambda: tl_dyck.frozen_importance(model(), tokens()),
    "ablation.ImportanceComparison": lambda: tl_dyck.compare_importance([heads(), heads()]),
    "ablation.LeaveOneOutImportance": lambda: tl_dyck.leave_one_out_importance(
        model(), tokens(), options=COMMON["options"](), progress=False
    ),
    "certify.DyckCertificates": lambda: tl_dyck.certify_dyck(
        uniform(), task(), n=1, length=3, budget=1
    ),
    "certify.Edit": lambda: certify.Edit("swap", 0, (0,), (1,)),
    "certify.WordSpace": lambda: certify.word_space(model().tokenizer, "[]", dup=1),
    "certify.language.Profiles": lambda: decided.Profiles(task().distribution),
    "certify.language.LanguageCertificate": lambda: tl_dyck.certify_language(uniform(), task(), 2),
    "judge.HeadTruths": cache(lambda: tl_dyck.head_truths(uniform(), task(), 3)),
    "judge.MinimalCircuit": cache(lambda: tl_dyck.minimal_circuit(uniform(), task(), 3)),
    "report.widgets.Widget": lambda: tl_dyck.widgets.attention(model(), "[]"),
    "runs.Sweep": sweep,
    "studies.Measurement": lambda: study().config.measurement,
    "studies.TrainExperiment": studies.TrainExperiment,
    "text.Corpus": lambda: Corpus(train=SENTENCES * 20, test=SENTENCES, problems={}),
    "text.TextRecipe": lambda: TextRecipe(data=str(corpus_folder())),
    "text.TextTraining": TextTraining,
    "text.TextConfig": words,
    "text.SentencesExperiment": SentencesExperiment,
    "text.SentencesMeasurement": SentencesMeasurement,
    "interventions.Eraser": lambda: interventions.Eraser.fit(
        torch.randn(20, 3, generator=generator()), torch.arange(20) % 2, 2
    ),
    "rnn.RNNConfig": lambda: rnn().config,
    "certify.Symbols": lambda: certify.Symbols(language().alphabet, "", logits=4),
    "certify.Resources": lambda: certify.Resources(language=language()),
    "training.DriftRegularizer": lambda: tl_dyck.training.DriftRegularizer(task().distribution, 4),
}
_ = (
    np,
    replace,
    interventions,
    decided,
    batch_edits,
    corpus_folder,
    reader,
    heads,
    pruned,
    trained,
)
