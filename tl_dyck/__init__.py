"""Test interpretability claims about attention where the right answer is known: Dyck languages.

Knows: the public names, and which module has each.
Does not know: what uses it, which it finds by entry points (`tl_dyck_hooks`, `tl_dyck_papers`,
`tl_dyck_text`).

Every public name is listed in the stub beside this file, ``__init__.pyi``, and imported when it is
first used, so ``import tl_dyck`` itself loads neither torch nor TransformerLens, and `tl_dyck.rnn`
and `tl_dyck.certify` never load the latter.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# Public name -> the module that has it; for a subpackage, reached as `tl_dyck.rnn` without a second
# import, "tl_dyck". Each is a line: Python's own parser takes longer to load than all the rest.
_LINES = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").split("\n")
_ORIGINS = {
    words[3]: words[1] for words in map(str.split, _LINES) if words[0:3:2] == ["from", "import"]
}

#: What comes from these is a module.
_ROOMS = (__name__, f"{__name__}.kit", f"{__name__}.reading")

__all__ = sorted(name for name, module in _ORIGINS.items() if module not in _ROOMS)


def __getattr__(name: str) -> Any:
    """Import a public name or subpackage on first use."""
    if name not in _ORIGINS:
        raise _no_attribute(name)
    origin = _ORIGINS[name]
    module = import_module(f"{origin}.{name}" if origin in _ROOMS else origin)
    value = globals()[name] = module if origin in _ROOMS else getattr(module, name)
    return value


def __dir__() -> list[str]:
    """List what tab completion should offer, loaded or not."""
    return sorted({*globals(), *_ORIGINS} - {"Any", "Path", "import_module"})


def _no_attribute(name: str) -> AttributeError:
    """Build the error for a name that is not there, with the nearest one that is."""
    from difflib import get_close_matches

    near = get_close_matches(name, _ORIGINS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; see dir(tl_dyck) for what there is"
    # obj=None: the interpreter would otherwise append a suggestion of its own to the traceback.
    return AttributeError(
        f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=None
    )
