"""Agents: what a folder holds, scripts with the judge's own numbers, and answers of any kind."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import multiprocessing
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_score

from tests.patience import PATIENCE
from tl_dyck.judge import Suite, judge_method, score_table
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.cheats import norms
from tl_dyck.judge.facts import all_prefixes
from tl_dyck.judge.public import shipped
from tl_dyck.judge.suites import SUITES
from tl_dyck_hooks.agents.folder import MODELS, AgentCase, case_of_files
from tl_dyck_hooks.agents.scoring import score_answers
from tl_dyck_hooks.agents.scripted import answers_of, knows_all

SALT = "9f3c71e05b8a42d6c1e7730b94af2d58"
SUITE = Suite(name="agents", sizes=dict.fromkeys(MODELS[:-1], 1)).with_salt(SALT)


@pytest.fixture(scope="module")
def cases():
    return [AgentCase(sealed_case(*name)) for name in SUITE.cases()]


@pytest.fixture(scope="module")
def and_trained(cases):
    """And two trained ones, of the suite that comes with the package."""
    file = shipped(SUITES["quick"])
    names = [name for name in file.suite.cases() if name[0] == "trained"][:2]
    return [*cases, *(AgentCase(file.sealed(*name)) for name in names)]


@pytest.fixture
def plain(tmp_path):
    """The model of a folder, run by the folder's own code."""

    def load(case):
        for name, data in case.files().items():
            (tmp_path / name).write_bytes(data)
        spec = importlib.util.spec_from_file_location("model", tmp_path / "model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load(tmp_path)

    return load


def test_the_plain_model_is_the_model_and_heads_can_be_cut(and_trained, plain):
    for case in and_trained:
        model, strings = plain(case), case.files()["strings.txt"].decode().split()
        logits, z, patterns = model.run(strings)
        whole, cache = case.case.model.run_with_cache(case.case.tokens)
        assert (logits - whole).abs().max() < 1e-10
        for layer in range(case.case.model.cfg.n_layers):
            assert (z[layer] - cache["z", layer]).abs().max() < 1e-10
            assert (patterns[layer] - cache["pattern", layer]).abs().max() < 1e-10

        def without(found, hook):
            found[:, :, 0] = 0
            return found

        hooks = [("blocks.0.attn.hook_z", without)]
        cut = case.case.model.run_with_hooks(case.case.tokens, fwd_hooks=hooks)
        assert (model.run(strings, heads={(0, 0): 0.0})[0] - cut).abs().max() < 1e-10


def test_a_folder_tells_what_a_method_is_told_and_no_more(and_trained):
    for case in and_trained:
        files = case.files()
        again, questions = case_of_files(files)
        assert torch.equal(again.tokens, case.case.tokens)
        assert (again.length, again.name) == (case.case.length, case.case.name)
        assert torch.equal(again.model(again.tokens), case.case.model(case.case.tokens))
        assert questions == [fact.question for fact in case.heads]
        said = json.loads(files["questions.json"])
        assert {*said} <= {"case", "heads", "long", "circuit"}
        for name in ("config.json", "weights.safetensors"):
            assert not re.search(rf"{case.sealed.kind}|seed".encode(), files[name])
        assert f"at most {case.case.length} brackets" in files["README.md"].decode()


@pytest.mark.parametrize("name", ["path-patching", "chance", "ov-norm", "zero-ablation"])
def test_scripts_have_the_judges_numbers(cases, name):
    rows = pd.concat([score_answers(case, answers_of(name, case)).rows for case in cases])
    rows = rows[rows["told"]].assign(method=name)
    mine = score_table(rows).loc[name, "auroc"]
    judged = judge_method(name, SUITE)["auroc"]
    kinds = [column for column in judged.index if column.split(",")[0] in {*rows["question"]}]
    assert len(kinds) >= 3
    np.testing.assert_allclose(mine[kinds], judged[kinds], atol=1e-12)


def test_who_knows_all_loses_nothing(and_trained):
    asked = dict.fromkeys(("prefix", "circuit"), 0)
    for case in and_trained:
        found = score_answers(case, json.dumps(knows_all(case)))
        assert (found.brier, found.stake, found.problems) == (0, 1, ())
        assert found.circuit in (None, 1)
        assert found.prefix in (None, True)
        for name in asked:
            asked[name] += getattr(found, name) is not None
    assert min(asked.values()) > 0


def test_circuits_are_what_a_plain_loop_finds(cases, plain):
    """Every set of heads of one case, by the folder's own code on every prefix, one at a time."""
    case = next(case for case in cases if case.circuits and len(case.circuits.heads) == 4)
    model, language = plain(case), case.case.task.language
    heads = case.circuits.heads
    rows = all_prefixes(language, case.case.length)

    def answers(kept):
        logits = model.run(rows, heads={head: 0.0 for head in heads if head not in kept})[0]
        return logits[..., 1 : language.n_brackets : 2].argmax(-1)

    asked = language.right_bracket(rows) >= 0
    sets = [s for n in range(len(heads) + 1) for s in itertools.combinations(heads, n)]
    faithful = [s for s in sets if bool((answers(s) == answers(heads))[asked].all())]
    least = min(map(len, faithful))
    for circuit in sets:
        said = score_answers(case, json.dumps({"circuit": [list(head) for head in circuit]}))
        assert said.circuit == (least / len(circuit) if circuit in faithful else 0.0)


@pytest.mark.slow
def test_what_is_had_without_looking_at_what_a_model_computes():
    """The page says 0.41 of who names all heads, and why nobody is asked for the algorithm."""
    file, names, of, all_heads = shipped(SUITES["quick"]), [], [], []
    for kind, seed in file.suite.cases():
        if kind not in MODELS:
            continue
        case = AgentCase(file.sealed(kind, seed))
        if seed < file.suite.first_seed + 16 and case.circuits is not None:
            every = [list(head) for head in case.circuits.heads]
            all_heads.append(score_answers(case, json.dumps({"circuit": every})).circuit)
        if kind != "trained":
            table = norms(case.case.model).filter(like="norm_").to_numpy(float)
            of.append(np.hstack([table.mean(0), table.min(0), table.max(0), table.std(0)]))
            names.append(kind)
    assert (len(all_heads), np.mean(all_heads)) == (69, pytest.approx(0.412, abs=5e-4))
    forest = ExtraTreesClassifier(200, random_state=0)
    assert cross_val_score(forest, np.array(of), names, cv=8).mean() > 0.75  # 16 of 56 are of one


def test_a_prefix_counts_only_if_the_model_closes_it_wrong(and_trained):
    case = next(case for case in and_trained if case.long and not case.long.answer)
    right = knows_all(case)["long"]["prefix"]
    language, model = case.case.task.language, case.case.model
    for prefix, counts in [
        *(
            (right, True),
            ("", False),
            ("]", False),
            ("x", False),
            (right[: len(right) // 3], False),
        ),
        *((7, False), (None, False), ("[" * 101, False), ("[" * 10_000, False), ("[]", False)),
    ]:
        said = score_answers(case, json.dumps({"long": {"yes": 0.0, "prefix": prefix}}))
        assert said.prefix is counts, prefix
    tokens = torch.tensor([[language.bos_token, *language.parse(right).tolist()]])
    said, wanted = int(model(tokens)[0, -1].argmax()), int(language.right_bracket(tokens)[0, -1])
    assert said != wanted


def test_confidence_pays_and_costs(cases):
    case = cases[0]
    truth = [float(fact.answer) for fact in case.heads]
    sure = score_answers(case, json.dumps({"heads": [0.9 if t else 0.1 for t in truth]}))
    n = len(sure.rows)
    share = len(truth) / n
    assert sure.stake == pytest.approx(share)
    assert sure.brier == pytest.approx(share * 0.01 + (1 - share) * 0.25)
    wrong = score_answers(case, json.dumps({"heads": [0.1 if t else 0.9 for t in truth]}))
    assert wrong.stake == pytest.approx(-9 * share)
    shy = score_answers(case, json.dumps({"heads": [0.89 if t else 0.11 for t in truth]}))
    assert shy.stake == 0


@pytest.mark.parametrize(
    "data",
    [
        *(None, b"", b"\xff\xfe", b"[]", b"7", b"NaN", b"{", b"[" * 200_000, b" " * 2_000_000),
        *(b'{"heads": 3, "long": [], "circuit": {}}', b'{"heads": [1]}'),
        b'{"heads": [NaN, 1e999, true, "1", null, -1, 2], "circuit": [[[0]], 0, "00", [0, 99]]}',
        b'{"circuit": [[0, 0], [0, 0]]}',
    ],
)
def test_answers_may_be_anything(cases, data):
    for case in cases:
        found = score_answers(case, data)
        assert (found.brier, found.stake) == (0.25, 0)
        assert found.circuit in (None, 0)
        assert found.problems
        assert not found.rows["told"].any()


#: What an agent that zeroes heads on the strings that it is given would run. It looks at the
#: answer after each string: where nothing is open, brackets that may open tie within rounding.
CODE = """
import json
from model import load
model, asked = load(), json.load(open("questions.json"))
strings = open("strings.txt").read().split()
whole = model.run(strings)[0][:, -1].argmax(-1)
def breaks(each):
    cut = model.run(strings, heads={(each["layer"], each["head"]): 0.0})[0][:, -1].argmax(-1)
    return 0.95 if (cut != whole).any() else 0.05
json.dump({"heads": [breaks(each) for each in asked["heads"]]}, open("answers.json", "w"))
"""


def in_inspect():
    """A sample each of an agent that runs `CODE`, and of the script that knows all."""
    from inspect_ai import eval as evaluate
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from tl_dyck_hooks.agents.task import circuits, script

    def outputs():
        call = f"{sys.executable} - <<'END'\n{CODE}\nEND"
        while True:
            for name, arguments in (("bash", {"command": call}), ("submit", {"answer": "done"})):
                said = ModelOutput.for_tool_call("mockllm", name, arguments)
                said.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
                yield said

    found = []
    for agent in (None, script("oracle")):
        task = circuits(cases=1, trained=False, salt=SALT, sandbox="local")
        mock = get_model("mockllm/model", custom_outputs=outputs())
        [log] = evaluate(
            task, solver=agent, model=mock, max_samples=1, limit=1, log_dir="logs", display="none"
        )
        assert log.status == "success", log.error
        metrics = {name: each.value for name, each in log.results.scores[0].metrics.items()}
        read = [[[str(m.content) for m in s.messages], s.metadata] for s in log.samples]
        found.append((metrics, read))
    Path("found.json").write_text(json.dumps(found))


@pytest.mark.once
@pytest.mark.filterwarnings("ignore")  # of Inspect, and of forks
def test_a_mock_agent_and_a_script_in_inspect(tmp_path, monkeypatch, cases):
    """In a fork, which has the cases: Inspect has an event loop, and a log handler, for all."""
    pytest.importorskip("inspect_ai")
    monkeypatch.chdir(tmp_path)
    child = multiprocessing.get_context("fork").Process(target=in_inspect)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    (mock, read), (oracle, _) = json.loads((tmp_path / "found.json").read_text())
    assert mock["auroc, needed"] > 0.9  # 64 strings, where every prefix is the truth
    assert 0 < mock["brier"] < 0.25
    assert mock["circuit"] == 0
    ((said, metadata),) = read  # nothing of the answers is in what the agent reads
    assert not any(metadata["kind"] in each or metadata["seed"] in each for each in said)
    assert [oracle[name] for name in ("brier", "stake", "circuit")] == [0, 1, 1]
    assert all(value == 1 or math.isnan(value) for name, value in oracle.items() if "auroc" in name)
