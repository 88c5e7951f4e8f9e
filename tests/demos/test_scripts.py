"""Every script in demos/ runs from beginning to end."""

from __future__ import annotations

import json
import re
import runpy
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tl_dyck import build_model, certify_language, construct, get_config, load_task
from tl_dyck.ablation import FinetuneConfig
from tl_dyck.judge import SUITES, Suite, cases, methods
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.public import shipped
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.models.hooked.installed import MAJOR
from tl_dyck.studies import Measurement, StudyConfig
from tl_dyck.training import TrainConfig, load_result
from tl_dyck_papers.adders import low_rank

needs_bridge = pytest.mark.skipif(MAJOR < 4, reason="TransformerLens 3 has no native bridges")

DEMOS = Path(__file__).parents[2] / "demos"
SHORT = TrainConfig(steps=20, min_steps=0, target=None, check_every=20, check_size=20)

pytestmark = [
    pytest.mark.global_rng,  # a HookedTransformer seeds it
    pytest.mark.filterwarnings("default"),  # scripts set filters of their own
]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a script in this process, which has TransformerLens already; returns what it printed."""

    def go(script, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(DEMOS / script), run_name="__main__")
        return capsys.readouterr().out

    return go


@pytest.fixture
def nothing_trained(monkeypatch):
    """Cases are some that come with the package; of others, built ones."""
    make, file = cases.sealed_case, shipped(SUITES["quick"])

    def sealed(kind, seed, **knobs):
        if kind in file.suite.sizes and {*knobs} <= {"block"}:
            block = knobs.get("block", "gpt")
            return file.sealed(kind, file.suite.first_seed + (3 if block == "eq6" else 0))
        return make("balanced" if kind == "trained" else kind, seed, **knobs)

    monkeypatch.setattr(cases, "sealed_case", sealed)


@pytest.fixture
def short_strings(monkeypatch):
    """Of judged models fewer strings are enumerated."""
    copy, length = SealedCase.copy, 3

    def shorter(self):
        case = copy(self)
        return replace(case, length=length, tokens=case.tokens[:, : 1 + length])

    monkeypatch.setattr(SealedCase, "copy", shorter)


def test_train_and_look(run, tmp_path):
    assert "AttentionVariation(layer 0" in run("train_and_look.py", 30, tmp_path / "look.html")
    page = (tmp_path / "look.html").read_text()
    assert "attention weight" in page
    assert 'src="http' not in page


def test_edges_behind_a_norm(run, nothing_trained):
    """A sum of edges is what the model does where no norm is behind the heads, and only there."""
    off, order = _tables(run("edges_behind_a_norm.py", 1))
    assert len(off) == 6
    assert [row["models"] for row in off] == [row["models"] for row in order]
    for row, ranked in zip(off, order, strict=True):
        behind = row["models"].startswith("norm behind")
        assert row["head's output"] == row["what the norm hands on"] == "exact"
        assert (row["sum of edges"] == "exact") == (not behind), row["models"]
        assert "exact" not in row["edge attribution (EAP)"]
        assert behind or ranked["sum of edges"] == ranked["head's output"]
        assert "exact" not in "".join(ranked.values())


def _tables(printed):
    """Tables of Markdown: of each its rows, cells by the names above, by the first cells."""
    found = []
    for block in printed.split("\n\n"):
        lines = [line.strip("| ").split(" | ") for line in block.splitlines() if " | " in line]
        if lines:
            found.append([dict(zip(lines[0], cells, strict=True)) for cells in lines[1:]])
    return found


def test_does_faithfulness_rank(run, nothing_trained, short_strings, tmp_path, monkeypatch):
    """All heads are perfectly faithful and find nothing; the oracle finds all."""
    few = ["zero-ablation", "path-patching", "ov-norm", "sharpness", "copying", "parser", "sizes"]
    monkeypatch.setattr("tl_dyck.judge.Suite", partial(Suite, first_seed=0))
    monkeypatch.setattr(methods, "names", lambda: few)
    printed = run("does_faithfulness_rank.py", 1, tmp_path, 100)
    assert (tmp_path / "table.md").read_text(encoding="utf-8") in printed
    ranked, shown = _tables(printed)
    metrics = dict.fromkeys(row["metric"] for row in ranked)
    assert [*metrics] == [
        metric + by
        for metric in ("CPR", "CMD")
        for by in ("", " by zeros", " by zeros, exchanged truth")
    ]
    assert len(ranked) == 7 * len(metrics)
    rows = {row.pop("circuits"): row for row in shown}
    assert set(few) - {"parser", "sizes"} < set(rows)  # of brackets, and one that orders no heads
    found = "heads that carry come first"
    every, none = rows["all heads at every size"], rows["no head at any size"]
    assert (every["CPR"], every["CMD"], every[found]) == ("1.00", "0.00", "0.50")
    assert (none["CPR"], none["CMD"], none[found]) == ("0.00", "1.00", "0.50")
    assert rows["oracle: by what each head carries"][found] == "1.00"
    assert rows["worst: the oracle backwards"][found] == "0.00"
    assert float(rows["greedy for the metric itself"]["CPR"]) >= float(rows["random order"]["CPR"])


def test_minimal_circuits(run, nothing_trained, short_strings, tmp_path, monkeypatch):
    """By means the circuits are as with means; who needs no more heads has changed nothing."""
    quick = {"edge-integrated-gradients": "edge-attribution", "activation-patching": "sharpness"}
    get = methods.get
    monkeypatch.setattr(methods, "get", lambda name: get(quick.get(name, name)))
    printed = run("minimal_circuits.py", 1, tmp_path)
    assert (tmp_path / "table.md").read_text(encoding="utf-8") in printed
    least, of_methods = _tables(printed)
    assert [row["outside"] for row in least] == ["mean", "zero", "exchanged"]
    assert least[0]["same as with means"].startswith("100%")
    assert len(of_methods) == 3 * 11
    for row in of_methods:
        assert row["faithful"].startswith("100%") == (row["heads more until faithful"] == "0.0")
        assert row["faithful"].startswith("0%") or row["answers changed"] == "0.00%"
    assert {row["faithful"].split("%")[0] for row in of_methods} == {"0", "100"}


def test_modular_addition(run, tmp_path):
    """The numbers of its table, with hooks on all pairs; of a model that is read from a file."""
    p, file = 5, tmp_path / "model.pth"
    config = {"d_model": 16, "d_head": 4, "n_heads": 2, "d_mlp": 24, "d_vocab": p + 1}
    model = HookedTransformer(HookedTransformerConfig(
        n_layers=1, n_ctx=3, d_vocab_out=p, act_fn="relu", normalization_type=None, seed=1, **config
    ))  # fmt: skip
    tokens = torch.tensor([[a, b, p] for a in range(p) for b in range(p)])
    right = tokens[:, :2].sum(1) % p
    # as they are published: in a dict, without biases, which are zero
    learnt = {name: weight for name, weight in model.named_parameters() if ".W_" in name}
    optimizer = torch.optim.Adam(learnt.values(), lr=0.02)
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(model(tokens)[:, -1], right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = {name: weight.detach() for name, weight in learnt.items()}
    torch.save({"model": weights, "config": config}, file)
    (rows,) = _tables(run("modular_addition.py", file, "--out", tmp_path))

    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        z = cache["blocks.0.attn.hook_z"]
        assert (model(tokens)[:, -1].argmax(-1) == right).all()
        for head, row in enumerate(rows):
            flat = cache["blocks.0.attn.hook_v"][:, :, head].mean(1)
            for name, put in {"zero": 0.0, "mean": z[:, 2, head].mean(0), "uniform": flat}.items():

                def change(found, hook, head=head, put=put):
                    found[:, 2, head] = put
                    return found

                hooks = [("blocks.0.attn.hook_z", change)]
                said = model.run_with_hooks(tokens, fwd_hooks=hooks)[:, -1].argmax(-1)
                assert int(row[name]) == int((said != right).sum()), (head, name)
    assert {int(row["zero"]) > 0 for row in rows} == {True}


def test_cumulative_sum(run):
    printed = run("cumulative_sum.py", "--steps", 20, "--length", 3, "--bits", 8)
    assert "1,331 sequences, least margin" in printed
    assert printed.count("cumulative sum, lengths 1 to 3") == 2


def test_next_words(run, tmp_path):
    line = "the {} king sees the {} queen and says: I am the {} of all."
    words = ["old", "new", "good", "bad", "first", "last", "one", "true", "false", "best"]
    lines = [line.format(a, b, c) for a in words for b in words for c in words[:4]]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    few = ["--steps", 3, "--vocabulary", 290, "--width", 16, "--prompts", 2, "--words", 6]
    printed = run("next_words.py", "text.txt", *few)
    assert printed.count(" proved, ") == 5
    assert "1 word mistyped" in printed


def test_repair_max(run, tmp_path):
    """Running all inputs says what deciding says; what is done is not done again."""
    few = ["--values", 5, "--width", 8, "--steps", 30, "--rounds", 2, "--out", tmp_path]
    first = run("repair_max.py", "--numbers", 3, 4, "--seeds", 2, *few)
    again = run("repair_max.py", "--numbers", 3, 4, "--seeds", 2, *few)
    assert (first.count("round 1: "), again.count("round 1: ")) == (4, 0)
    (rows,) = _tables(again)
    assert rows == _tables(first)[0]
    assert [row["as when all are run"] for row in rows] == ["2 of 2", "2 of 2"]
    for numbers in (3, 4):
        kept = json.loads((tmp_path / f"max-{numbers}-width-8.json").read_text())
        assert all(each["inputs"] == each["run"][1] > 0 for each in kept.values())


@needs_bridge
def test_repair_adder_gives_up_in_a_line(run, tmp_path):
    with pytest.raises(SystemExit, match="not proved after 1 rounds; --rounds allows more"):
        run("repair_adder.py", "--first", 10, "--steps", 2, "--rounds", 1, "--out", tmp_path)
    assert not [*tmp_path.glob("*.pt")]


@needs_bridge
@pytest.mark.slow
def test_repair_adder(run, tmp_path):
    """What is proved is no more than what all sums, run, say; and the file is read again."""
    printed = run("repair_adder.py", "--out", tmp_path)
    proved = float(re.search(r"4 of 4 answers proved, least margin at least (\S+)", printed)[1])
    assert 0 < proved <= float(re.search(r"10,000 sums run: least margin (\S+)", printed)[1])
    (file,) = tmp_path.glob("*.pt")
    saved = torch.load(file, weights_only=True)
    adder = low_rank("again", saved["model_state"], saved["model_config"], digits=2)
    assert certify_language(adder.rnn, adder.task, until="signs").status == "proved"


def test_ablate_any_model(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tl_dyck.FinetuneConfig", lambda **options: FinetuneConfig(**{**options, "steps": 12})
    )
    printed = run("ablate_any_model.py", 20, tmp_path / "path.html")
    for mode in ("zero", "mean", "resample", "uniform-pattern", "gradient"):
        assert f"HeadImportance({mode}" in printed
    assert "'L1H" in printed.split("removed, first to last: ")[1]
    page = (tmp_path / "path.html").read_text()
    assert "expected gate" in page
    assert 'src="http' not in page


def test_bring_your_own(run, tmp_path):
    printed = run("bring_your_own.py", 15, tmp_path)
    assert "without a vocabulary: nothing says which token id" in printed
    about = ("AttentionVariation(", "Attention on the top", "HeadImportance(mean", "Certificate")
    assert all(what in printed for what in about)
    assert printed.count("BalanceViolation(beta=") == 2
    assert "LanguageCertificate" in printed
    for page in ("attention.html", "seeds.html"):
        assert "&lt;bos&gt;" in (tmp_path / page).read_text()
    asked = (DEMOS / "bring_your_own.py").read_text().split("# %% Adopt it")[1]
    lines = [line for line in asked.splitlines()[1:] if line and not line.startswith("#")]
    assert len(lines) <= 40


def test_contrast_and_certify(run, tmp_path, monkeypatch):
    fewer = partial(Measurement, n_accuracy=100, n_long=10, n_strings=50)
    monkeypatch.setattr("tl_dyck.studies.Measurement", fewer)
    options = ("--seeds", 1, "--weights", 0, 1, "--steps", 20, "--prefixes", 1, "--jobs", 1)
    printed = run("contrast_and_certify.py", *options, "--out", tmp_path / "runs")
    lines = [line.split()[0] for line in printed.splitlines() if line[:1].isdigit()]
    assert lines == ["0", "1"]
    assert "survive every insertion" in printed


def test_trained_and_proved(run, tmp_path, monkeypatch):
    fewer = partial(Measurement, n_accuracy=100, n_strings=50)
    monkeypatch.setattr(
        "tl_dyck.studies.Measurement", lambda **options: fewer(**{**options, "n_long": 10})
    )
    options = ("--seeds", 1, "--steps", 20, "--length", 4, "--out", tmp_path, "--jobs", 1)
    trainings = ("plain", "drift, weight 0.03")
    printed = run("trained_and_proved.py", *options, "--trainings", *trainings)
    assert printed.count("provable lengths:") == 2
    lines = (tmp_path / "minimal-onehot" / "table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in trainings]


def test_two_layers_proved(run, tmp_path):
    """Decided beyond what is run as far as all are run; what is done is not done again."""
    options = ("--seeds", 2, "--steps", 20, "--length", 4, "--jobs", 1, "--out", tmp_path)
    first = run("two_layers_proved.py", *options, "--trainings", "99", "1000")
    again = run("two_layers_proved.py", *options, "--trainings", "99", "1000")
    assert (first.count(", seed "), again.count(", seed ")) == (4, 0)
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == ["2", "2"]
    for seed, found in json.loads((tmp_path / "99.json").read_text()).items():
        model = load_result(tmp_path / "99" / f"seed-{seed}", device="cpu").model
        assert found["proved_to"] == certify_language(model, "dyck-2-4", 4).proved_to
        assert found["after"] == ("right" if found["proved_to"] == 4 else "wrong")


def test_feed_back_counterexamples(run):
    options = ("--seeds", 3, "--rounds", 1, "--steps", 5, "--first", 60, "--length", 8)
    printed = run("feed_back_counterexamples.py", *options, "--jobs", 1)
    lines = [line for line in printed.splitlines() if line.startswith("seed ")]
    assert [line.split(":")[0] for line in lines] == ["seed 0", "seed 1", "seed 2"]
    fed = [int(re.search(r"; (\d+) prefixes fed back in (\d) rounds", line)[1]) for line in lines]
    assert all(0 <= n <= 3 for n in fed)
    assert any(fed)  # after 60 steps some prefix is wrong
    for name in ("before", "fed back", "as many steps"):
        assert f"proved up to, {name}" in printed
    assert f"; {np.mean(fed):.0f} prefixes" in printed.splitlines()[-1]


def test_what_predicts_length(run, tmp_path, monkeypatch):
    fewer = partial(Measurement, n_accuracy=100, n_long=10, n_strings=50)
    monkeypatch.setattr("tl_dyck.studies.Measurement", fewer)
    monkeypatch.setattr("tl_dyck.studies.StudyConfig", partial(StudyConfig, training=SHORT))
    printed = run("what_predicts_length.py", "--seeds", 8, "--length", 4, "--jobs", 1)
    lines = printed.splitlines()
    seeds = [line.split(":")[0] for line in lines if line.startswith("seed")]
    assert seeds == [f"seed  {seed}" for seed in range(8)]  # fewer have no interval
    titles = ("accuracy predicted by moments", "accuracy predicted from drift")
    for title in (*titles, "balance violation", "exact error up to 4"):
        (line,) = [line for line in lines if line.strip().startswith(title)]
        assert re.fullmatch(r" *[a-z0-9 ]+ [+-]\d\.\d\d \[[+-]\d\.\d\d, [+-]\d\.\d\d\]", line)


def test_along_and_across(run, tmp_path, monkeypatch):
    fewer = partial(Measurement, n_accuracy=100, n_long=10, n_strings=50)
    monkeypatch.setattr("tl_dyck.studies.Measurement", fewer)
    options = ("--seeds", 3, "--steps", 30, "--length", 30, "--prefixes", 60, "--jobs", 1)
    printed = run("along_and_across.py", *options)
    found = dict(re.findall(r"^  (\S[\w ]+?) +(\d\.\d{3}) \[", printed, re.M))
    parts = ["all that pairs add", "along the axis alone", "across it alone"]
    assert list(found) == [*parts, "by pair_drift", "by accuracy_at_length"]
    assert "+1.00 [" in printed.partition("all that pairs add")[2].splitlines()[0]


def test_along_and_across_takes_the_model_s_own_answers_apart():
    """With all that pairs add the answers are the model's; uniform attention has nothing to add."""
    script = runpy.run_path(str(DEMOS / "along_and_across.py"))
    task = load_task("dyck-2-4")
    prefixes = script["Prefixes"](task.distribution, 150, 40)
    model = build_model(
        get_config("minimal-onehot", task, initializer_range=0.5, dtype=torch.float64), seed=1
    )
    source = torch.Generator().manual_seed(0)
    tokens = task.distribution.sample(150, 40, mode="prefix", generator=source)
    tokens = torch.cat([torch.full((150, 1), 4), tokens], dim=1)
    language = task.language
    tokens = tokens[language.is_close(tokens[:, -1]) & (language.depth(tokens)[:, -1] > 0)]
    with torch.no_grad():
        logits = model(tokens)[:, -1]
    right = logits[:, 1:4:2].argmax(-1) == prefixes.top
    found = prefixes.taken_apart(model)
    assert found["all that pairs add"] == pytest.approx(right.double().mean().item())
    assert 0.2 < found["all that pairs add"] < 0.9
    exact = prefixes.taken_apart(construct.uniform_attention(language))
    assert set(exact.values()) == {1.0}
