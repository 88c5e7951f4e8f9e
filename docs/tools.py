"""Write docs/api/tools.md: which of TransformerLens' tools work, on each release.

Run it with each release: ``python docs/tools.py`` measures with the one that is installed, keeps
what was found in docs/tools/3.json or 4.json, and writes the page from both. A tool "works" if it
runs and what it returns satisfies an identity. A test compares the installed release with what is
kept.
"""

from __future__ import annotations

import copy
import importlib
import json
import re
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from tl_dyck import as_bridge, build_model, get_config, load_task
from tl_dyck.models.bridge import NoBridgeError
from tl_dyck.models.hooked.installed import MAJOR

PAGE = Path(__file__).parent / "api" / "tools.md"
RESULTS = Path(__file__).parent / "tools"
FAMILIES = ("gpt", "gpt-linear", "eq6", "eq49", "minimal-onehot", "figure2-onehot")
_TEXTS = ("[(())]([", "(())[]([")

_INTRO = """# Which TransformerLens tools work

Which tools of TransformerLens work on the models here? There are three columns. In
TransformerLens 3 a model is a HookedTransformer. In TransformerLens 4 it is of a class of this
library. The last column is `as_bridge(model)`. A tool *works* if it runs and the identity beside
it holds up to rounding, in float64, with two layers and two heads (one layer where the family has
one). Otherwise the table has the difference or the error.

Known limits:

- Eq. 6 has a norm behind the heads. So the heads' outputs do not add up to what is added to the
  residual stream, in any release.
- Minimal first layers have no trainable embedding. Tools that compute gradients at the embedding
  find none, and say so if asked for `W_E`.
- The residual stream of `eq49` (LayerNorm around the sum) and of `figure2-*` (no residual
  connection) is not a plain sum: `decompose_resid` and `logit_attrs` warn. `figure2-*` has no
  MLP, so no neurons.
- `process_weights_` of TransformerLens 3.9 folds LayerNorms with weights of their own wrongly,
  also in a plain HookedTransformer. It warns if predictions change;
  `process_weights_(fold_ln=False)` changes none.
- `SVDInterpreter` of TransformerLens 3 takes float32 only.

`docs/tools.py` writes this page, and was run with 3.9.0 and 4.3.0. A test compares it with the
installed release.
"""

Check = Callable[[Any, torch.Tensor], float]


def _cache(model: Any, tokens: torch.Tensor) -> Any:
    return model.run_with_cache(tokens)[1]


def _apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / (1 + expected.abs().max()))


def _last(cache: Any, model: Any) -> torch.Tensor:
    last: torch.Tensor = cache["resid_post", model.cfg.n_layers - 1]
    return last


def decompose(model: Any, tokens: torch.Tensor) -> float:
    """`decompose_resid`: the components add up to the residual stream."""
    cache = _cache(model, tokens)
    return _apart(cache.decompose_resid().sum(0), _last(cache, model))


def accumulate(model: Any, tokens: torch.Tensor) -> float:
    """`accumulated_resid`: the last is the residual stream."""
    cache = _cache(model, tokens)
    return _apart(cache.accumulated_resid()[-1], _last(cache, model))


def head_results(model: Any, tokens: torch.Tensor) -> float:
    """`stack_head_results`: heads and b_O add up to the attention's outputs."""
    cache = _cache(model, tokens)
    layers = range(model.cfg.n_layers)
    outputs = sum(cache["attn_out", layer] - model.b_O[layer] for layer in layers)
    return _apart(cache.stack_head_results().sum(0), outputs)


def neuron_results(model: Any, tokens: torch.Tensor) -> float:
    """`stack_neuron_results`: neurons and b_out add up to the MLPs' outputs."""
    cache = _cache(model, tokens)
    layers = range(model.cfg.n_layers)
    outputs = sum(cache["mlp_out", layer] - model.b_out[layer] for layer in layers)
    return _apart(cache.stack_neuron_results(model.cfg.n_layers).sum(0), outputs)


def logit_attributions(model: Any, tokens: torch.Tensor) -> float:
    """`logit_attrs`: attributions and b_U add up to the logit."""
    logits, cache = model.run_with_cache(tokens)
    parts = cache.decompose_resid(pos_slice=-1)
    found = cache.logit_attrs(parts, tokens=3, pos_slice=-1, has_batch_dim=True).sum(0)
    return _apart(found, logits[:, -1, 3] - model.b_U[3])


def patch_residual(model: Any, tokens: torch.Tensor) -> float:
    """`patching.get_act_patch_resid_pre`: at the changed token, before layer 0, it restores all."""
    patching = importlib.import_module("transformer_lens.patching")
    clean, corrupted = tokens[:1], tokens[:1].clone()
    corrupted[0, 1] = 2 - corrupted[0, 1]
    logits, cache = model.run_with_cache(clean)
    found = patching.get_act_patch_resid_pre(model, corrupted, cache, lambda out: out[0, -1, 3])
    return _apart(found[0, 1], logits[0, -1, 3])


def patch_heads(model: Any, tokens: torch.Tensor) -> float:
    """`patching.get_act_patch_attn_head_out_all_pos`: into the same prompt, it changes nothing."""
    patching = importlib.import_module("transformer_lens.patching")
    logits, cache = model.run_with_cache(tokens)
    run = patching.get_act_patch_attn_head_out_all_pos
    found = run(model, tokens, cache, lambda out: out[0, -1, 3])
    return _apart(found, logits[0, -1, 3].expand(found.shape))


def detect(model: Any, tokens: torch.Tensor) -> float:
    """`head_detector.detect_head`: the score is the weight on the token before."""
    detector = importlib.import_module("transformer_lens.head_detector")
    text = "[(())]"
    found = detector.detect_head(model, text, "previous_token_head", error_measure="mul")
    pattern = _cache(model, model.to_tokens(text))["pattern", 0][0].double()
    weight = torch.diagonal(pattern, offset=-1, dim1=1, dim2=2).sum(-1) / pattern.sum((-1, -2))
    return _apart(found[0].double(), weight.cpu())


def singular_vectors(model: Any, tokens: torch.Tensor) -> float:
    """`SVDInterpreter.get_singular_vectors`: it runs."""
    interpreter = importlib.import_module("transformer_lens").SVDInterpreter(model)
    interpreter.get_singular_vectors("OV", layer_index=0, head_index=0, num_vectors=1)
    return 0.0


def composition(model: Any, tokens: torch.Tensor) -> float:
    """`all_composition_scores("V")`: ‖A B‖ / ‖A‖ ‖B‖ of the first heads of two layers."""
    found = model.all_composition_scores("V").detach()
    if model.cfg.n_layers < 2:
        return float(found.abs().max())
    a, b = (model.W_V[layer, 0] @ model.W_O[layer, 0] for layer in (0, 1))
    return _apart(found[0, 0, 1, 0], ((a @ b).norm() / a.norm() / b.norm()).detach())


def attribution(model: Any, tokens: torch.Tensor) -> float:
    """`attribution_patch`: of a prompt to itself nothing is attributed."""
    tool = importlib.import_module("transformer_lens.tools.analysis.attribution_patching")
    found = tool.attribution_patch(model, tokens, tokens, lambda out: out[:, -1, 3].mean())
    return max(abs(float(score)) for score in dict(found.node_scores).values())


def direct_logits(model: Any, tokens: torch.Tensor) -> float:
    """`direct_logit_attribution`: attributions and b_U add up to the logit (compatibility mode)."""
    if hasattr(model, "enable_compatibility_mode"):
        model.enable_compatibility_mode(disable_warnings=True)
    tool = importlib.import_module("transformer_lens.tools.analysis.direct_logit_attribution")
    found = tool.direct_logit_attribution(model, tokens[:1], answer_tokens=3)
    logit = model(tokens[:1])[0, -1, 3] - model.b_U[3]
    return _apart(found.attribution.sum().double(), logit)


def logit_lens(model: Any, tokens: torch.Tensor) -> float:
    """`logit_lens`: the last layer's are the model's logits."""
    tool = importlib.import_module("transformer_lens.tools.analysis.logit_lens")
    found = tool.logit_lens(model, tokens).values.double()
    return _apart(found[-1].reshape(-1), model(tokens)[:, -1].reshape(-1))


def kernel(model: Any, tokens: torch.Tensor) -> float:
    """`attention_head_subspace_affinity`: it runs."""
    tool = importlib.import_module("transformer_lens.tools.analysis.projection_kernel")
    tool.attention_head_subspace_affinity(model, target_role="V")
    return 0.0


TOOLS: tuple[Check, ...] = (
    decompose,
    accumulate,
    head_results,
    neuron_results,
    logit_attributions,
    patch_residual,
    patch_heads,
    detect,
    singular_vectors,
    composition,
    attribution,
    direct_logits,
    logit_lens,
    kernel,
)


def outcome(tool: Check, make: Callable[[], Any], tokens: torch.Tensor) -> str:
    """One word or a reason."""
    try:
        model = copy.deepcopy(make()).eval()  # tools change it
    except NoBridgeError as error:
        return f"refused: {_line(error)}"
    try:
        with torch.no_grad() if tool not in (attribution,) else torch.enable_grad():
            wrong_by = tool(model, tokens)
    except ModuleNotFoundError:
        return "not in this release"
    except Exception as error:  # whatever a tool raises is what the page is about
        return f"{type(error).__name__}: {_line(error)}"
    return "works" if wrong_by < 1e-6 else f"differs by {wrong_by:.1g}"


def _line(error: Exception) -> str:
    text = re.sub(r"\s+", " ", str(error)).strip()
    return text if len(text) <= 90 else f"{text[:87].rstrip()}…"


def _bridged(config: Any) -> Any:
    return as_bridge(build_model(config, seed=0))


def measured() -> dict[str, dict[str, dict[str, str]]]:
    """For each tool and family what comes of it, with our model and with its bridge."""
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, dict[str, str]]] = {}
    task = load_task("dyck-2-4")
    for family in FAMILIES:
        n_heads = 1 if family.startswith("minimal") else 2
        config = get_config(family, task, n_heads=n_heads, dtype=torch.float64)
        ways: dict[str, Callable[[], Any]] = {"model": cache(partial(build_model, config, seed=0))}
        if MAJOR >= 4:
            ways["bridge"] = cache(partial(_bridged, config))
        tokens = build_model(config, seed=0).to_tokens(list(_TEXTS)).cpu()
        for tool in TOOLS:
            words = found.setdefault(str(tool.__doc__).splitlines()[0], {})
            words[family] = {way: outcome(tool, make, tokens) for way, make in ways.items()}
    return found


def page() -> str:
    """The page, from what is kept of each release."""
    kept = {major: json.loads((RESULTS / f"{major}.json").read_text()) for major in (3, 4)}
    columns = ((3, "model", "3"), (4, "model", "4"), (4, "bridge", "4, `as_bridge`"))
    lines = [_INTRO]
    for family in FAMILIES:
        head = [
            f"| tool and identity | {' | '.join(name for *_, name in columns)} |",
            "|---|---|---|---|",
        ]
        lines += [f"\n## `{family}`\n", *head]
        for tool in kept[4]:
            cells = [
                kept[major].get(tool, {}).get(family, {}).get(way, "–").replace("|", "\\|")
                for major, way, _ in columns
            ]
            lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{MAJOR}.json"
    path.write_text(json.dumps(measured(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if all((RESULTS / f"{major}.json").exists() for major in (3, 4)):
        PAGE.write_text(page(), encoding="utf-8")
