"""Write docs/api/hook_names.md: the TransformerLens hook names of each family, read off the models.

Run it: ``python docs/hook_names.py``. A test compares the page with the models.
"""

from __future__ import annotations

import re
from pathlib import Path

from tl_dyck import build_model, get_config, list_models, load_task
from tl_dyck.models import models

PAGE = Path(__file__).parent / "api" / "hook_names.md"

# sizes that differ from each other, so that a shape tells what each dimension is (five tokens: four
# brackets and BOS)
_SIZES = {"batch": 3, "head": 2, "pos": 7, "d_model": 26, "d_head": 13, "d_mlp": 40, "d_vocab": 5}
_TEXTS = ["[(())]", "[][][]", "((()))"]

_INTRO = """# Hook names

Every hook point of a family and what it holds, read off the models by `docs/hook_names.py`; \
a test keeps this page up
to date. Names and meanings are TransformerLens' own: `model.run_with_cache("[()]")` returns \
a cache with these keys,
`run_with_hooks` takes them. `{l}` is the layer, counted from 0. Where a family has no such hook, \
there is nothing of
the kind to see: a bare layer has no MLP and no residual stream after the attention \
that differs from its output.

In every family with a residual stream `hook_resid_mid = hook_resid_pre + hook_attn_out`. \
With Eq. 6 the attention's
output is normalised *before* it is added, so `hook_attn_out` is what is added and `ln1_post` \
holds that LayerNorm;
there is none before attention and MLP. With Eq. 49 the sum is normalised: \
the MLP's output is added to
`ln2.hook_normalized`, so that `hook_resid_post = ln2.hook_normalized + hook_mlp_out`.
"""


def hooks_of(family: str) -> dict[str, str]:
    """Hook name, layers made general -> shape in words."""
    sizes = {key: _SIZES[key] for key in ("d_model", "d_head", "d_mlp")}
    model = build_model(get_config(family, load_task("dyck-2-4"), n_heads=_SIZES["head"], **sizes))
    _, cache = model.run_with_cache(_TEXTS)
    names = {size: name for name, size in _SIZES.items()}
    return {
        re.sub(r"^blocks\.\d+", "blocks.{l}", name): " ".join(
            names.get(size, str(size)) for size in value.shape
        )
        for name, value in cache.items()
    }


def families() -> list[str]:
    """The families that come with the library."""
    return [name for name in list_models() if models.get(name).__module__.startswith("tl_dyck.")]


def page() -> str:
    """The whole page."""
    found = {family: hooks_of(family) for family in families()}
    groups: dict[tuple[str, ...], list[str]] = {}
    for family, hooks in found.items():
        groups.setdefault(tuple(hooks), []).append(family)
    shapes: dict[str, str] = {}
    for hooks in found.values():
        for name, shape in hooks.items():
            if shapes.setdefault(name, shape) != shape:
                raise ValueError(
                    f"{name} has the shape [{shape}] in one family and [{shapes[name]}] in another"
                )
    letters = [chr(ord("A") + index) for index in range(len(groups))]
    lines = [_INTRO, "| | families | layers |", "|---|---|---|"]
    for letter, members in zip(letters, groups.values(), strict=True):
        layers = sorted({get_config(family, "dyck-2-4").n_layers for family in members})
        lines.append(
            f"| **{letter}** | {', '.join(f'`{family}`' for family in members)} | "
            f"{', '.join(map(str, layers))} |"
        )
    lines += ["", f"| hook | shape | {' | '.join(letters)} |", f"|---|---|{':-:|' * len(letters)}"]
    longest = max(groups, key=len)
    order = [*longest, *(name for name in shapes if name not in longest)]
    for name in order:
        marks = " | ".join("✓" if name in names else "" for names in groups)
        lines.append(f"| `{name}` | `[{shapes[name]}]` | {marks} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
