"""A small study from end to end: what it writes and says, and what happens when run again."""

import copy
import math
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from tests.certify.proofs.common import check_file
from tests.recorded import numbers
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models import get_config
from tl_dyck.report.study import study_page
from tl_dyck.runs import aggregate, load_results
from tl_dyck.studies import Measurement, StudyConfig, findings, load_study, run_study
from tl_dyck.studies.findings import _length, told_apart
from tl_dyck.studies.measurement import cross_entropy
from tl_dyck.studies.tables import study_markdown
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, train
from tl_dyck.training.run import stream

CONFIG = StudyConfig(
    families=("minimal-onehot", "gpt"),
    seeds=(0, 1, 5),
    training=TrainConfig(steps=25, batch_size=8, check_every=25, check_size=50, target=0.9),
    measurement=Measurement(
        n_accuracy=100, n_long=10, n_strings=200, n_certified=3, n_inserted=1, decided_length=6
    ),
    n_bootstrap=50,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return run_study(CONFIG, tmp_path_factory.mktemp("study"), n_jobs=1, progress=False)


def test_the_numbers_are_those_of_before(tiny_study):
    numbers.check("study", numbers.of_study(tiny_study))


def test_every_run_is_there_whatever_came_of_it(study):
    assert list(zip(study.models["family"], study.models["seed"], strict=True)) == [
        (family, seed) for family in CONFIG.families for seed in CONFIG.seeds
    ]
    assert set(study.models["status"]) <= {"reached", "not reached"}
    failed = study.models[study.models["status"] != "reached"]
    assert len(failed) > 0  # 25 steps are not enough for a GPT
    said = [
        finding
        for finding in findings(study)
        if finding.title == "Some runs did not reach the target accuracy"
    ]
    assert len(said) == 1
    for family, rows in failed.groupby("family"):
        seeds = ", ".join(map(str, rows["seed"]))
        assert f"{family} {len(rows)} of 3 (seed{'s' * (len(rows) > 1)} {seeds}; " in said[0].text
        assert f"{rows['accuracy'].min():.1%}" in said[0].text


@pytest.mark.parametrize(
    ("share", "target", "said"),
    [(0.98997, 0.99, "98.997%"), (0.9899, 0.99, "98.99%"), (0.99, 0.99, "99.0%"),
     (0.9, 0.99, "90.0%"), (0.98997, None, "99.0%"), (math.nan, 0.99, "nan%")],
)  # fmt: skip
def test_a_share_just_short_of_its_target_is_told_from_it(share, target, said):
    assert told_apart(share, target) == said


@pytest.mark.parametrize(
    ("near", "far", "title", "said"),
    [
        (0.9998, 0.6, "is not accurate at length", "falls most for {} from 99.98% to 60.0%"),
        (1.0, 1.0, "As accurate at length", "falls for no family: {} from 100.0% to 100.0%"),
        (0.99, 0.99996, "As accurate at length", "falls for no family: {} from 99.0% to 99.996%"),
        (0.995, 0.99, "As accurate at length", "falls most for {} from 99.5% to 99.0%"),
    ],
)
def test_what_is_said_of_length_is_so(study, monkeypatch, near, far, title, said):
    """Of models that are as good there, too; and only what is all is 100 %."""
    family = study.config.families[0]
    facts = {
        name: {**study.summary["families"][family]["accuracy"], "mean": mean, "low": math.nan}
        for name, mean in (("accuracy_after_close", near), ("long_accuracy_after_close", far))
    }
    facts |= {"accuracy": {**facts["accuracy_after_close"]}}
    facts["long_accuracy"] = facts["long_accuracy_after_close"]
    monkeypatch.setitem(study.summary, "families", {family: facts})
    (found,) = _length(study)
    assert title in found.title
    assert said.format(family) in found.text
    assert near == 1 or "100.0%" not in found.text


def test_numbers_are_those_of_the_saved_models(study):
    task = load_task("dyck-2-4")
    for row in study.models.itertuples():
        model = study.run(row.family, row.seed).model
        for name, lengths, n in (("accuracy", "training", 100), ("long_accuracy", "long", 10)):
            seed = stream(CONFIG.measurement.data_seed, f"closing, {lengths}", row.seed)
            found = task.closing_accuracy(model, n=n, long=lengths == "long", seed=seed)
            assert getattr(row, name) == found.any_token
            assert getattr(row, f"{name}_after_close") == found.after_close
            rows = study.closings.query(
                "family == @row.family and seed == @row.seed and lengths == @lengths"
            )
            assert rows["depth"].tolist() == [1, 2, 3]
            expected = [math.nan if a is None else a for a in found.after_close_by_depth]
            assert rows["accuracy"].tolist() == pytest.approx(expected, nan_ok=True)
        assert math.isnan(row.balance_violation) == (row.family == "gpt")
        _, cache = model.run_with_cache("[[[[]]]](((())))")
        for layer in range(model.cfg.n_layers):
            assert torch.equal(
                study.patterns(row.family, row.seed)[layer], cache["pattern", layer][0]
            )


def test_variation_is_that_of_the_saved_patterns(study):
    for row in study.variation.itertuples():
        patterns = [
            study.patterns(row.family, seed)[row.layer, 0].double() for seed in CONFIG.seeds
        ]
        pairs = [(a, b) for i, a in enumerate(patterns) for b in patterns[i + 1 :]]
        expected = np.mean([float(((a - b) ** 2).sum()) for a, b in pairs])
        assert row.variation == pytest.approx(expected, rel=1e-5)
        assert row.low <= row.variation <= row.high
        assert row.n_models == 3


def test_certificates_are_those_of_the_saved_models(study):
    task, table = load_task("dyck-2-4"), study.certificates
    assert set(table["family"]) == {"minimal-onehot"}  # the others have two layers
    assert len(table) == 3 * CONFIG.measurement.n_certified
    for (family, seed), rows in table.groupby(["family", "seed"]):
        model = study.run(family, seed).model
        whole = study.models.set_index(["family", "seed"]).loc[family, seed]
        assert whole["proved_share"] == (rows["status"] == "proved").mean()
        assert whole["refuted_share"] == (rows["status"] == "refuted").mean()
        assert whole["logit_change"] == rows["logit_change_seen"].max()
        for row in rows.itertuples():
            before, after = (
                model(row.prefix)[0, -1].detach(),
                model(row.most_changed_string)[0, -1].detach(),
            )
            assert float(abs(after - before).max()) == pytest.approx(
                row.logit_change_seen, abs=1e-4
            )
            assert row.logit_change_proved == pytest.approx(row.logit_change_seen, abs=1e-4)
            logits = model(row.worst_string)[0, -1].detach()
            target = task.language.alphabet.index(row.target)
            margin = float(logits[target] - max(x for i, x in enumerate(logits) if i != target))
            assert margin == pytest.approx(row.margin_seen, abs=1e-4)
            assert row.status == ("proved" if margin > 0 else "refuted")
            assert task.language.top_of_stack(task.language.parse(row.prefix))[-1] >= 0
            plain = row.worst_edits.replace("‹+", "").replace("›", "")
            assert plain == row.worst_string
        worst = rows.loc[rows["margin_seen"].idxmin()]
        patterns = study.certificate_patterns(family, seed)
        for name, text in (("original", worst["prefix"]), ("worst", worst["worst_string"])):
            _, cache = model.run_with_cache(text)
            assert torch.equal(patterns[name], cache["pattern", 0][0])
    assert study.models.loc[study.models["family"] == "gpt", "logit_change"].isna().all()


def test_what_is_proved_is_kept_as_a_proof_of_the_saved_model(study):
    kept = study.proofs()
    assert {family for family, _ in kept} == {"minimal-onehot"}  # of two layers there are none yet
    for row in study.languages[study.languages["family"] == "minimal-onehot"].itertuples():
        if row.proved_to == 0:  # a claim of no prefix is no proof
            assert (row.family, row.seed) not in kept
            continue
        said = check_file(kept[row.family, row.seed], study.run_folder(row.family, row.seed))
        assert f"of up to {row.proved_to} brackets" in said
        assert said.endswith("compared with the model")


def test_decided_prefixes_are_those_of_the_saved_models(study):
    """Every prefix up to the length, run through the model."""
    task, table = load_task("dyck-2-4"), study.languages
    assert list(table["family"]) == ["minimal-onehot"] * 3 + ["gpt"] * 3
    language, length = task.language, CONFIG.measurement.decided_length
    for row in table.itertuples():
        model = study.run(row.family, row.seed).model
        wrong = {}
        for n in range(1, length + 1):
            prefixes = language.enumerate(n, "prefix")
            prefixes = prefixes[language.depth(prefixes)[:, -1] > 0]
            top = language.top_of_stack(prefixes)[:, -1:]
            tokens = torch.cat([torch.full((len(prefixes), 1), language.bos_token), prefixes], 1)
            missed = model(tokens)[:, -1].argmax(-1) != prefixes.gather(1, top)[:, 0] + 1
            nats = task.distribution.log_prob(prefixes)
            wrong |= {
                language.to_string(prefixes[i]): (float(nats[i].exp()), n)
                for i in torch.nonzero(missed)[:, 0].tolist()
            }
        assert row.length == length
        assert row.status == ("refuted" if wrong else "proved")
        assert row.proved_to == min((n for _, n in wrong.values()), default=length + 1) - 1
        whole = study.models.set_index(["family", "seed"]).loc[row.family, row.seed]
        assert whole["proved_to"] == row.proved_to
        if wrong:
            likeliest = max(probability for probability, _ in wrong.values())
            assert row.is_likeliest
            assert row.probability == pytest.approx(likeliest)
            assert wrong[row.likeliest][0] == pytest.approx(likeliest)
            _, cache = model.run_with_cache(row.likeliest)
            pattern = study.language_pattern(row.family, row.seed)
            assert torch.equal(pattern, cache["pattern", 0][0])
    assert (table["status"] == "refuted").any()
    titles = [finding.title for finding in findings(study)]
    assert any("are right on every prefix" in title for title in titles)
    sampled = study.models.set_index(["family", "seed"])["accuracy"]
    for finding in (each for each in findings(study) if each.figure == "languages"):
        right = sampled[finding.title.partition(":")[0]] == 1
        assert ("None closes" in finding.text) is (not right.any())


def test_no_certificates_if_none_are_wanted(tmp_path):
    config = replace(CONFIG, families=("minimal-onehot",), seeds=(0,))
    config = replace(
        config, measurement=replace(CONFIG.measurement, n_certified=0, decided_length=0)
    )
    done = run_study(config, tmp_path, n_jobs=1, progress=False)
    assert done.certificates.empty
    assert done.languages.empty
    assert "logit_change" not in done.models or done.models["logit_change"].isna().all()
    assert load_study(tmp_path).certificates.empty
    assert not any("inserted pairs" in finding.title for finding in findings(done))


def test_cross_entropy_is_per_token_with_an_honest_error():
    task = load_task("dyck-2-4")
    model = train(
        get_config("minimal-onehot", task), task, options=CONFIG.training, progress=False
    ).model
    mean, error = cross_entropy(model, task, n=100, seed=1)
    tokens = task.sample(100, generator=torch.Generator().manual_seed(1))
    losses = []
    for row in tokens:
        string = row[: int((row != 4).sum()) + 1]
        logits = model(string[None])[0, :-1].detach()
        losses += F.cross_entropy(logits, string[1:], reduction="none").tolist()
    assert mean == pytest.approx(np.mean(losses), rel=1e-5)
    spread = np.std([cross_entropy(model, task, n=100, seed=seed)[0] for seed in range(30)])
    assert 0.6 < error / spread < 1.6  # thirty draws tell a standard deviation to about 13 %


def test_a_lost_run_is_made_again_with_the_same_result(study):
    folder = study.run_folder("minimal-onehot", 5)
    weights = (folder / "model.safetensors").read_bytes()
    shutil.rmtree(folder)
    record = folder.with_suffix(".json")
    with pytest.raises(CorruptFileError, match=f"delete .*{record.name}.* to do this run again"):
        run_study(CONFIG, study.folder, n_jobs=1, progress=False)
    record.unlink()
    again = run_study(CONFIG, study.folder, n_jobs=1, progress=False)
    assert (folder / "model.safetensors").read_bytes() == weights
    columns = ["accuracy", "long_accuracy", "loss", "balance_violation"]
    pd.testing.assert_frame_equal(again.models[columns], study.models[columns])


def test_the_means_of_a_study_are_those_of_its_sweep(tiny_study):
    """`tl-dyck sweep results FOLDER --metrics NAME` gives what the study's page shows."""
    results = load_results(tiny_study.folder)
    for name in ("accuracy", "long_accuracy_after_close", "loss", "logit_change"):
        alone = aggregate(results, [name], by=["model"]).set_index("model")
        for family, facts in tiny_study.summary["families"].items():
            if name in facts:
                for end in ("mean", "low", "high", "again_low", "again_high"):
                    assert alone.loc[family, end] == pytest.approx(facts[name][end], nan_ok=True)
                assert alone.loc[family, "interval"] == facts[name]["interval"]


def test_words_on_pages_follow_the_kind_of_interval(tiny_study):
    """Of another kind, all that is said of it is said of that one."""
    assert "t intervals over seeds, corrected for skewness" in study_markdown(tiny_study)
    summary = copy.deepcopy(tiny_study.summary)
    for facts in summary["families"].values():
        for each in facts.values():
            if isinstance(each, dict):
                each |= {"interval": "exact", "level": 0.9}
    other = replace(
        tiny_study, summary=summary, variation=tiny_study.variation.assign(interval="bootstrap")
    )
    text = study_markdown(other)
    assert "90 % intervals over seeds (exact: Clopper and Pearson)" in text
    assert "90 % prediction intervals" in text
    assert "t intervals" not in text
    page = study_page(other)
    assert "90 % intervals over seeds (exact" in page
    assert "95 % bootstrap intervals over seeds" in page
    assert "t intervals over" not in page
