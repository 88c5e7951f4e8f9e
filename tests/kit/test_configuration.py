"""Configurations go to JSON and come back, and say in a line what they do not take."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tl_dyck.ablation import FinetuneConfig
from tl_dyck.kit.check import WrongTypeError, WrongValueError
from tl_dyck.kit.configuration import Configuration, nested, parameters_of
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.studies import Measurement, StudyConfig
from tl_dyck.studies.heads import AblateConfig
from tl_dyck.training import TrainConfig
from tl_dyck_papers.stack_use.measure import StackUseScale
from tl_dyck_papers.wen_2023 import Scale
from tl_dyck_text.study import SentencesMeasurement
from tl_dyck_text.training import TextTraining

SOME = [
    TrainConfig(steps=7, target=None),
    FinetuneConfig(penalties=(0.5, 1.0)),
    TextTraining(objective="ibp", weight=0.25),
    Measurement(decided_length=9),
    AblateConfig(leave_one_out=None),
    StudyConfig(seeds=(3, 1), training=TrainConfig(learning_rate=1)),
    Scale(lengths=()),
    StackUseScale(seeds=2),
    SentencesMeasurement(limit=4),
]


@pytest.mark.parametrize("config", SOME, ids=lambda config: type(config).__name__)
def test_there_and_back(config: Configuration) -> None:
    saved = json.loads(json.dumps(config.to_dict()))
    assert saved == config.to_dict()
    assert type(config).from_dict(saved) == config
    assert type(config).from_dict(nested(parameters_of("part", config))["part"]) == config
    assert hash(config) == hash(replace(config))
    with pytest.raises(UnknownNameError, match=r"unknown parameter 'here\.sede'"):
        type(config).from_dict({**saved, "sede": 1}, "here.")
    with pytest.raises(WrongTypeError, match="must be an object, got 5"):
        type(config).from_dict(5)


def test_numbers_are_of_their_range_and_type() -> None:
    assert TrainConfig(learning_rate=1) == TrainConfig(learning_rate=1.0)
    assert type(TrainConfig(learning_rate=1).learning_rate) is float
    with pytest.raises(WrongValueError, match="steps must be at least 1, got 0"):
        StudyConfig.from_dict({"training": {"steps": 0}})
    with pytest.raises(WrongTypeError, match=r"n_long must be an integer, got '5' \(str\)"):
        Measurement(n_long="5")  # type: ignore[arg-type]
