"""Every scale, and the groups of models that it asks for."""

from __future__ import annotations

import pytest

from tl_dyck.studies.paper import SCALES, Scale
from tl_dyck.studies.paper.scales import groups_of


@pytest.mark.parametrize("name", SCALES)
def test_scales_are_complete_and_survive_json(name):
    scale = SCALES[name]
    assert Scale.from_dict(scale.to_dict()) == scale
    assert 0.0 in scale.weights
    groups = groups_of(scale)
    assert len({group.name for group in groups}) == len(groups)
    assert {group.seeds for group in groups} == {
        scale.seeds,
        scale.table_seeds,
        scale.contrastive_seeds,
    }
    assert name != "paper" or min(group.seeds for group in groups) == 40
    for group in groups:
        assert group.config().language == group.load_task().language
        assert group.longest in (None, max(group.load_task().train_lengths))
    assert {max(g.load_task().train_lengths) for g in groups if g.watched} == {26, *scale.lengths}
