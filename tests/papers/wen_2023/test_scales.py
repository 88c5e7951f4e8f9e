"""Every scale, and the groups of models that it asks for."""

from __future__ import annotations

import pytest

from tl_dyck_papers.wen_2023 import SCALES, Scale
from tl_dyck_papers.wen_2023.run import PAPER
from tl_dyck_papers.wen_2023.scales import groups_of


@pytest.mark.parametrize("name", SCALES)
def test_scales_are_complete_and_survive_json(name):
    scale = SCALES[name]
    assert Scale.from_dict(scale.to_dict()) == scale
    assert 0.0 in scale.weights
    groups = groups_of(scale)
    assert len({group["group"] for group in groups}) == len(groups)
    assert {group["seeds"] for group in groups} == {
        scale.seeds,
        scale.table_seeds,
        scale.contrastive_seeds,
    }
    assert name != "paper" or min(group["seeds"] for group in groups) == 40
    watched = set()
    for group in groups:
        job = PAPER.prepare({k: v for k, v in group.items() if k != "seeds"})
        config, task = job.config, job.task
        assert config.language == task.language
        assert (f"-to-{max(task.train_lengths)}" in task.name) == ("task.name" in group)
        if group["measure.watched"]:
            watched.add(max(task.train_lengths))
    assert watched == {26, *scale.lengths}
