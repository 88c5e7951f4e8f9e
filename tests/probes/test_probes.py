"""Probes of third parties: what may be registered, and what becomes of one that fails."""

import pytest

from tl_dyck import (
    Registry,
    RegistryError,
    build_model,
    get_config,
    register_probe,
)
from tl_dyck.probes import call_probe, list_probes, load_probe, probes, takes_many


@pytest.fixture
def plugged():
    """Register under a name, and forget it afterwards."""
    names = []

    def plug(name, probe):
        names.append(name)
        return register_probe(name)(probe)

    yield plug
    for name in names:
        probes.unregister(name)


@pytest.fixture(scope="module")
def models():
    return [build_model(get_config("gpt", "dyck-2-4"), seed) for seed in range(2)]


def test_one_model_or_many(plugged, models):
    plugged("width", lambda model, factor=2: factor * model.cfg.d_model)
    plugged("how-many", lambda models: len(models))
    assert call_probe("width", models[:1]) == 100
    assert call_probe("how-many", models) == 2
    assert [takes_many(load_probe(name)) for name in ("width", "how-many")] == [False, True]


def test_the_built_in_ones_keep_the_rule():
    assert {name for name in list_probes() if takes_many(load_probe(name))} == {
        "attention_variation"
    }


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        (lambda: None, "takes no model"),
        (lambda *, model: None, "takes no model"),
        (lambda model, tokens: None, "needs tokens, which nobody gives it"),
        (lambda model, *, layer, head=0: None, "needs layer, which nobody gives it"),
        ("text", "must be a function"),
    ],
)
def test_signatures_that_nobody_can_call(plugged, probe, message):
    with pytest.raises(RegistryError, match=message):
        plugged("mine", probe)
    assert "mine" not in list_probes()


def test_a_built_in_name_is_not_taken_by_accident():
    fresh = Registry("probe", "tl_dyck.probes")  # which has loaded none of them yet
    with pytest.raises(RegistryError, match=r"announced by .*replace=True"):
        fresh.register("attention_variation")(lambda models: None)
    assert fresh.get("attention_variation").__module__.startswith("tl_dyck.probes")
    fresh.register("attention_variation", replace=True)(len)
    assert fresh.get("attention_variation") is len
