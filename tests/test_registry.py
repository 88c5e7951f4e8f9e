"""The registry: by decorator, by a really installed entry point, and all that can go wrong."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.registry import Registry, RegistryError, UnknownNameError, unknown_name

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


class TestInCode:
    def test_decorator_returns_what_it_is_given(self, toys: Registry[object]) -> None:
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
        assert toys.summary("ball") == "A ball."
        assert repr(toys) == "Registry('toy', 'tl_dyck_test.toys'): ball"

    def test_summary_is_the_one_given(self, toys: Registry[object]) -> None:
        def ball() -> None:
            """A ball."""

        toys.register("ball", summary="round")(ball)
        toys.register("ball")(ball)  # the same object again changes nothing
        assert toys.summaries() == {"ball": "round"}

    def test_an_instance_does_not_borrow_the_docstring_of_its_class(
        self, toys: Registry[object]
    ) -> None:
        toys.register("three")(3)
        assert toys.summary("three") == ""

    def test_duplicate_names_both_objects(self, toys: Registry[object]) -> None:
        toys.register("ball")(Shelf)
        with pytest.raises(
            RegistryError, match=r"toy 'ball' is already registered as \S*Shelf"
        ) as caught:
            toys.register("ball")(Registry)
        assert "tl_dyck.registry.Registry" in str(caught.value)
        assert "replace=True" in str(caught.value)
        assert toys.get("ball") is Shelf

    def test_replace_takes_the_name_over(self, toys: Registry[object]) -> None:
        toys.register("ball", summary="old")(1)
        toys.register("ball", replace=True)(2)
        assert toys.get("ball") == 2
        assert toys.summary("ball") == ""

    def test_unregister(self, toys: Registry[object]) -> None:
        toys.register("ball")(1)
        toys.get("ball")
        toys.unregister("ball")
        assert toys.names() == []
        with pytest.raises(UnknownNameError):
            toys.get("ball")
        toys.register("ball")(2)
        assert toys.get("ball") == 2

    @pytest.mark.parametrize("name", ["", " ball", "ball\n"])
    def test_unusable_name(self, toys: Registry[object], name: str) -> None:
        with pytest.raises(RegistryError, match="cannot name a toy"):
            toys.register(name)

    def test_a_decorator_without_a_name(self, toys: Registry[object]) -> None:
        with pytest.raises(RegistryError, match=r'registered under a name: @register\("my-toy"\)'):
            toys.register(lambda model: None)  # type: ignore[arg-type]

    def test_a_check_is_asked(self) -> None:
        def never(name: str, item: object) -> None:
            raise RegistryError(f"{name} will not do")

        with pytest.raises(RegistryError, match="ball will not do"):
            Registry[object]("toy", GROUP, check=never).register("ball")(1)

    @settings(max_examples=25)  # each lookup of a name reads the metadata of all that is installed
    @given(st.dictionaries(names, st.integers()))
    def test_holds_exactly_what_was_registered(self, items: dict[str, int]) -> None:
        registry: Registry[int] = Registry("number", GROUP)
        for name, item in items.items():
            registry.register(name)(item)
        assert registry.names() == sorted(items)
        assert {name: registry.get(name) for name in registry.names()} == items


class TestUnknown:
    def test_nearest_name_and_all_names(self, toys: Registry[object]) -> None:
        for name in ("ball", "doll", "train"):
            toys.register(name)(1)
        with pytest.raises(UnknownNameError, match="unknown toy 'trian'") as caught:
            toys.get("trian")
        assert "Did you mean 'train'?" in str(caught.value)
        assert "Known: ball, doll, train." in str(caught.value)

    def test_nothing_near(self) -> None:
        assert str(unknown_name("toy", "zzz", ["ball"])) == "unknown toy 'zzz'. Known: ball."

    def test_nothing_known(self, toys: Registry[object]) -> None:
        with pytest.raises(UnknownNameError, match=r"Known: \(none\)\."):
            toys.get("ball")

    @given(names)
    def test_one_dropped_letter_is_recognised(self, name: str) -> None:
        name = "abcd" + name
        assert f"Did you mean {name!r}?" in str(
            unknown_name("toy", name[1:], [name, "\N{SNOWMAN}"])
        )


class TestEntryPoints:
    def test_found_without_import_and_loaded_on_use(
        self, toys: Registry[object], shelf: Shelf
    ) -> None:
        assert toys.names() == []
        shelf.install("toy-shop", "def kite():\n    'Flies.'\n", {"kite": "toy_shop:kite"})
        assert toys.names() == ["kite"]
        assert "kite" in toys
        assert shelf.loaded() == set()
        kite = toys.get("kite")
        assert shelf.loaded() == {"toy_shop"}
        assert kite is sys.modules["toy_shop"].kite
        assert toys.summary("kite") == "Flies."
        assert toys.get("kite") is kite

    def test_announced_and_decorated_is_one_thing(
        self, toys: Registry[object], shelf: Shelf
    ) -> None:
        """A package may do both; the summary it gives in code is kept."""
        shelf.install("toy-shop", "def kite():\n    'Flies.'\n", {"kite": "toy_shop:kite"})
        kite = importlib.import_module("toy_shop").kite
        toys.register("kite", summary="needs wind")(kite)
        assert toys.names() == ["kite"]
        assert toys.get("kite") is kite
        assert toys.summary("kite") == "needs wind"

    def test_decorated_object_cannot_hide_an_announced_one(
        self, toys: Registry[object], shelf: Shelf
    ) -> None:
        shelf.install("toy-shop", "def kite(): ...\n", {"kite": "toy_shop:kite"})
        toys.register("kite")(1)
        with pytest.raises(RegistryError, match=r"already registered as int 1.*toy_shop\.kite"):
            toys.get("kite")

    def test_unless_it_says_so(self, toys: Registry[object], shelf: Shelf) -> None:
        shelf.install("toy-shop", "def kite(): ...\n", {"kite": "toy_shop:kite"})
        toys.register("kite", replace=True)(1)
        assert toys.get("kite") == 1
        assert shelf.loaded() == set()

    def test_two_packages_announce_the_same_name(
        self, toys: Registry[object], shelf: Shelf
    ) -> None:
        shelf.install("toy-shop", "kite = 1", {"kite": "toy_shop:kite"})
        shelf.install("toy-barn", "kite = 2", {"kite": "toy_barn:kite", "cow": "toy_barn:kite"})
        assert toys.names() == ["cow", "kite"]
        assert toys.get("cow") == 2
        with pytest.raises(
            RegistryError, match=r"toy 'kite' is announced by toy-.*'toy_shop:kite'"
        ) as caught:
            toys.get("kite")
        assert "toy-barn (entry point 'toy_barn:kite')" in str(caught.value)

    @pytest.mark.parametrize(
        ("code", "value", "cause", "message"),
        [
            ("raise RuntimeError('no batteries')", "toy_shop:kite", RuntimeError, "no batteries"),
            (
                "import toy_that_is_missing",
                "toy_shop:kite",
                ModuleNotFoundError,
                "toy_that_is_missing",
            ),
            ("", "toy_shop:kite", AttributeError, "kite"),
            ("", "toy_elsewhere:kite", ModuleNotFoundError, "toy_elsewhere"),
        ],
    )
    def test_broken(
        self,
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
            assert f"toy 'kite' is announced by toy-shop (entry point {value!r})" in str(
                caught.value
            )
        lines = toys.summaries()
        assert lines["ball"] == "round"
        assert lines["kite"].startswith("(unusable: ")

    def test_other_groups_are_not_ours(self, toys: Registry[object], shelf: Shelf) -> None:
        shelf.install("toy-shop", "kite = 1", {"kite": "toy_shop:kite"}, group="somebody.else")
        assert toys.names() == []
        with pytest.raises(UnknownNameError):
            toys.get("kite")


@pytest.mark.parametrize(
    ("where", "attribute", "kind"),
    [
        ("tl_dyck.tasks", "tasks", "task"),
        ("tl_dyck.models", "models", "model"),
        ("tl_dyck.probes", "probes", "probe"),
        ("tl_dyck.certify", "certifiers", "certifier"),
    ],
)
def test_our_four_registries(where: str, attribute: str, kind: str, shelf: Shelf) -> None:
    """Each is where the documentation says, and a third party's package shows up in it."""
    registry = getattr(importlib.import_module(where), attribute)
    assert registry.kind == kind
    assert registry.group == f"tl_dyck.{attribute}"
    shelf.install("toy-plug", "", {"toy-plug": "toy_plug:thing"}, group=registry.group)
    assert "toy-plug" in registry.names()
    assert shelf.loaded() == set()
