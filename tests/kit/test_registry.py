"""The registry: by decorator, by a really installed entry point, and all that can go wrong."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tl_dyck.kit.registry import Registry, RegistryError, UnknownNameError, unknown_name

GROUP = "tl_dyck_test.toys"

names = st.text(
    st.characters(categories=("L", "N"), include_characters="-_."), min_size=1, max_size=12
)


class Shelf:
    """A folder on sys.path into which toy distributions are installed, as pip does it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, distribution: str, code: str, entry_points: dict[str, str], group: str = GROUP
    ) -> None:
        module = distribution.replace("-", "_")
        (self.folder / f"{module}.py").write_text(code)
        info = self.folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entry_points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        importlib.invalidate_caches()

    def loaded(self) -> set[str]:
        return {name for name in sys.modules if name.startswith("toy_")}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shelf = Shelf(tmp_path)
    yield shelf
    for name in shelf.loaded():
        del sys.modules[name]


@pytest.fixture
def toys() -> Registry[object]:
    return Registry("toy", GROUP)


# --- in code --------------------------------------------------------------------------------------


def test_what_is_registered_is_found_under_its_name(toys: Registry[object]) -> None:
    def ball() -> str:
        """A ball.

        And more about it.
        """
        return "bounce"

    assert toys.register("ball")(ball) is ball
    assert toys.get("ball") is toys.resolve("ball") is toys.resolve(ball) is ball
    assert toys.names() == ["ball"]
    assert "ball" in toys
    assert "doll" not in toys
    assert repr(toys) == "Registry('toy', 'tl_dyck_test.toys'): ball"
    assert toys.summary("ball") == "A ball."
    toys.register("cube", summary="square")(Shelf)
    toys.register("cube")(Shelf)  # the same object again changes nothing
    toys.register("three")(3)  # an instance does not borrow the docstring of its class
    assert toys.summaries() == {"ball": "A ball.", "cube": "square", "three": ""}


def test_a_name_is_of_one_object_until_it_is_replaced_or_given_up(toys: Registry[object]) -> None:
    toys.register("ball", summary="old")(Shelf)
    with pytest.raises(RegistryError, match=r"toy 'ball' is already registered as \S*Shelf") as no:
        toys.register("ball")(Registry)
    assert "tl_dyck.kit.registry.Registry" in str(no.value)
    assert "replace=True" in str(no.value)
    assert toys.get("ball") is Shelf
    toys.register("ball", replace=True)(2)
    assert (toys.get("ball"), toys.summary("ball")) == (2, "")
    toys.unregister("ball")
    assert toys.names() == []
    with pytest.raises(UnknownNameError):
        toys.get("ball")
    toys.register("ball")(3)
    assert toys.get("ball") == 3


def test_what_cannot_be_registered(toys: Registry[object]) -> None:
    for name in ("", " ball", "ball\n"):
        with pytest.raises(RegistryError, match="cannot name a toy"):
            toys.register(name)
    with pytest.raises(RegistryError, match=r'registered under a name: @register\("my-toy"\)'):
        toys.register(lambda model: None)  # type: ignore[arg-type]

    def never(name: str, item: object) -> None:
        raise RegistryError(f"{name} will not do")

    with pytest.raises(RegistryError, match="ball will not do"):
        Registry[object]("toy", GROUP, check=never).register("ball")(1)


# --- unknown names --------------------------------------------------------------------------------


def test_an_unknown_name_is_told_with_the_nearest_and_all(toys: Registry[object]) -> None:
    with pytest.raises(UnknownNameError, match=r"Known: \(none\)\."):
        toys.get("ball")
    for name in ("ball", "doll", "train"):
        toys.register(name)(1)
    near = r"unknown toy 'trian'.*Did you mean 'train'\?.*Known: ball, doll, train\."
    with pytest.raises(UnknownNameError, match=near):
        toys.get("trian")
    assert str(unknown_name("toy", "zzz", ["ball"])) == "unknown toy 'zzz'. Known: ball."


@given(names)
def test_one_dropped_letter_is_recognised(name: str) -> None:
    name = "abcd" + name
    said = str(unknown_name("toy", name[1:], [name, "\N{SNOWMAN}"]))
    assert f"Did you mean {name!r}?" in said


# --- entry points ---------------------------------------------------------------------------------

KITE = "def kite():\n    'Flies.'\n"


def test_found_without_import_and_loaded_on_use(toys: Registry[object], shelf: Shelf) -> None:
    assert toys.names() == []
    shelf.install("toy-shop", KITE, {"kite": "toy_shop:kite"})
    shelf.install("toy-barn", "cow = 1", {"cow": "toy_barn:cow"}, group="somebody.else")
    assert toys.names() == ["kite"]
    assert "kite" in toys
    assert shelf.loaded() == set()
    kite = toys.get("kite")
    assert shelf.loaded() == {"toy_shop"}
    assert kite is sys.modules["toy_shop"].kite
    assert toys.summary("kite") == "Flies."
    assert toys.get("kite") is kite
    with pytest.raises(UnknownNameError):  # other groups are not ours
        toys.get("cow")


def test_announced_and_decorated_is_one_thing(toys: Registry[object], shelf: Shelf) -> None:
    """A package may do both; the summary it gives in code is kept."""
    shelf.install("toy-shop", KITE, {"kite": "toy_shop:kite"})
    kite = importlib.import_module("toy_shop").kite
    toys.register("kite", summary="needs wind")(kite)
    assert toys.names() == ["kite"]
    assert toys.get("kite") is kite
    assert toys.summary("kite") == "needs wind"


def test_decorated_object_hides_an_announced_one_only_if_it_says_so(
    toys: Registry[object], shelf: Shelf
) -> None:
    shelf.install("toy-shop", KITE, {"kite": "toy_shop:kite"})
    other = Registry[object]("toy", GROUP)
    other.register("kite", replace=True)(1)
    assert other.get("kite") == 1
    assert shelf.loaded() == set()
    toys.register("kite")(1)
    with pytest.raises(RegistryError, match=r"already registered as 1 \(int\).*toy_shop\.kite"):
        toys.get("kite")


def test_two_packages_announce_the_same_name(toys: Registry[object], shelf: Shelf) -> None:
    shelf.install("toy-shop", "kite = 1", {"kite": "toy_shop:kite"})
    shelf.install("toy-barn", "kite = 2", {"kite": "toy_barn:kite", "cow": "toy_barn:kite"})
    assert toys.names() == ["cow", "kite"]
    assert toys.get("cow") == 2
    announced = r"toy 'kite' is announced by toy-.*'toy_shop:kite'"
    with pytest.raises(RegistryError, match=announced) as caught:
        toys.get("kite")
    assert "toy-barn (entry point 'toy_barn:kite')" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "value", "cause", "message"),
    [
        ("raise RuntimeError('no batteries')", "toy_shop:kite", RuntimeError, "no batteries"),
        ("import toy_missing", "toy_shop:kite", ModuleNotFoundError, "toy_missing"),
        ("", "toy_shop:kite", AttributeError, "kite"),
        ("", "toy_elsewhere:kite", ModuleNotFoundError, "toy_elsewhere"),
    ],
)
def test_broken_entry_points(
    toys: Registry[object],
    shelf: Shelf,
    code: str,
    value: str,
    cause: type[Exception],
    message: str,
) -> None:
    shelf.install("toy-shop", code, {"kite": value})
    toys.register("ball", summary="round")(1)
    assert toys.names() == ["ball", "kite"]
    assert toys.get("ball") == 1
    for _ in range(2):  # the second failure says the same as the first
        with pytest.raises(RegistryError, match=f"{cause.__name__}: .*{message}") as caught:
            toys.get("kite")
        assert isinstance(caught.value.__cause__, cause)
        who = f"toy 'kite' is announced by toy-shop (entry point {value!r})"
        assert who in str(caught.value)
    lines = toys.summaries()
    assert lines["ball"] == "round"
    assert lines["kite"].startswith("(unusable: ")
