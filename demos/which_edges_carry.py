"""Which edges carry, and which tools know? Head to head, head to MLP, embedding to head.

Run it: ``python demos/which_edges_carry.py`` (three minutes on one CPU core; a number behind it: so
many models of each kind).

An edge carries if the model breaks, on any prefix, when the reader of the edge reads what it would
had the source put out what it does on the string with all bracket types exchanged, all else as it
is. Tools see 64 strings, and say how far that moves the mean logit difference: by running it with
the norm that stands behind the heads, or without; by a gradient; or by the size of the change.
"""

# %% Models: of the judge, held out, and trained ones of two layers whose heads read each other.
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tl_dyck import intervals
from tl_dyck.environment import environment, one_thread
from tl_dyck.interventions import run
from tl_dyck.judge import Case, make_case
from tl_dyck.judge.constructed import small_task
from tl_dyck.judge.edges import Edges, edge_truths
from tl_dyck.judge.facts import all_prefixes, difference, exchange_types
from tl_dyck.judge.scoring import auroc
from tl_dyck.judge.suites import HELD_OUT
from tl_dyck.models import DyckTransformerConfig, build_model
from tl_dyck.models.lean import lean_logits
from tl_dyck.studies.tables import markdown

n_models = int(sys.argv[1]) if len(sys.argv) > 1 else 12
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "results/edges")
BUILT = ("uniform", "balanced", "stack", "backup")


def two_layers(seed: int, block: str) -> Case:
    """A model of two layers of two heads, fitted to the exact law of the next bracket."""
    generator = torch.Generator().manual_seed(seed)
    task = small_task(2, 3)
    states = 2 * 2 * 3 + 1
    config = DyckTransformerConfig(
        n_types=2,
        max_depth=3,
        embedding="onehot",
        block=block,
        n_layers=2,
        n_heads=2,
        d_model=2 * states,
        d_head=states,
        d_mlp=2 * states,
        act_fn="relu",
        n_ctx=16,
        dtype=torch.float64,
    )
    model = build_model(config, seed=seed)
    tokens = all_prefixes(task.language, max(task.train_lengths))
    law = task.distribution.next_token_probs(tokens)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(300):
        rows = torch.randint(len(tokens), (48,), generator=generator)
        with torch.enable_grad():
            optimiser.zero_grad()
            told = lean_logits(model, tokens[rows]).log_softmax(-1)
            (-(law[rows] * told).sum(-1).mean()).backward()
        optimiser.step()
    strings = task.distribution.sample(64, tokens.shape[1] - 1, mode="prefix", generator=generator)
    begin = torch.full((len(strings), 1), task.language.bos_token)
    return Case(model, task, tokens.shape[1] - 1, torch.cat([begin, strings], 1))


def models(index: int) -> dict[str, Case]:
    """One of each kind."""
    seed = HELD_OUT + index
    return {
        "norm behind heads, built": make_case(BUILT[index % len(BUILT)], seed)[0],
        "norm behind heads, trained": make_case("trained", seed, block="eq6")[0],
        "norm behind heads, two layers": two_layers(seed, "eq6"),
        "no norm, trained": make_case("trained", seed, block="gpt")[0],
        "no norm, two layers": two_layers(seed, "gpt"),
    }


# %% What tools say of each edge.
def slopes(case: Case, edges: Edges, share: float) -> dict[str, torch.Tensor]:
    """Gradient of the mean logit difference by what is read, the embedding being moved so far."""
    right = case.task.language.right_bracket(case.tokens)
    change = share * edges.written(edges.edges[0])  # of the embedding
    leaves: dict[str, torch.Tensor] = {}

    def leaf(found: torch.Tensor, hook) -> torch.Tensor:
        leaves[hook.name] = torch.zeros_like(found, requires_grad=True)
        return found + leaves[hook.name]

    names = {edges.reads(edge)[0] for edge in edges.edges}
    hooks = [("hook_embed", lambda found, hook: found + change), *((name, leaf) for name in names)]
    with torch.enable_grad():
        logits = edges.model.run_with_hooks(case.tokens, fwd_hooks=hooks)
        told = difference(case.task.language, logits, right).sum() / (right >= 0).sum()
        found = torch.autograd.grad(told, list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


def said(case: Case) -> pd.DataFrame:
    """A row for each edge: by how much each tool says that the logit difference moves."""
    language = case.task.language
    right = language.right_bracket(case.tokens)
    edges = Edges(case.model, case.tokens, exchange_types(language, case.tokens))

    def told(logits: torch.Tensor) -> float:
        return float(difference(language, logits, right).sum() / (right >= 0).sum())

    base = told(run(case.model, case.tokens))
    here = slopes(case, edges, 0.0)
    steps = [slopes(case, edges, (step + 0.5) / 5) for step in range(5)]
    between = {name: sum(step[name] for step in steps) / len(steps) for name in here}
    rows = []
    for edge in edges.edges:
        name, head = edges.reads(edge)
        written, handed = edges.written(edge), edges.handed(edge)

        def along(slope: dict, change: torch.Tensor, name=name, head=head) -> float:
            found = slope[name] if head is None else slope[name][:, :, head]
            return float((found * change).sum())

        rows.append(
            {
                "path patching": told(edges.logits(edge, handed)) - base,
                "the same, a sum of edges": told(edges.logits(edge, written)) - base,
                "EAP": along(here, written),
                "EAP, through the norm": along(here, handed),
                "EAP with integrated gradients": along(between, written),
                "cheat: size of the change": float(written.norm(dim=-1).mean()),
            }
        )
    return pd.DataFrame(rows)


# %% Ask them.
started, tables = time.process_time(), []
with one_thread():
    for index in range(n_models):
        for group, case in models(index).items():
            truth = edge_truths(case)
            found = pd.concat([truth, said(replace(case))], axis=1)
            tables.append(found.assign(group=group, case=f"{group} {index}"))
seconds = time.process_time() - started
table = pd.concat(tables, ignore_index=True)
table = table[table["answer"].notna()]
folder.mkdir(parents=True, exist_ok=True)
(folder / "environment.json").write_text(json.dumps(environment()), encoding="utf-8")

# %% AUROC of yes and no; and how far the numbers are from the true ones, as a share of these.
TOOLS = [name for name in table if name not in (*truth.columns, "group", "case")]
table["norm"] = table["group"].str.partition(",")[0]
ASKED = list(dict.fromkeys(table["kind"]))


def ranks(part: pd.DataFrame, tool: str) -> intervals.Estimate:
    """AUROC over all edges; models are resampled."""
    answers, scores = part["answer"].to_numpy(bool), part[tool].abs().to_numpy(float)
    cases = list(part.reset_index(drop=True).groupby("case").indices.values())
    rng, drawn = np.random.default_rng(0), []
    for _ in range(1000):
        rows = np.concatenate([cases[at] for at in rng.integers(len(cases), size=len(cases))])
        drawn.append(auroc(answers[rows], scores[rows]))
    return intervals.estimate(auroc(answers, scores), np.array(drawn), len(cases))


def off(part: pd.DataFrame, tool: str) -> str:
    """Σ |said − true| / Σ |true| over all edges; models are resampled."""
    wrong = (part[tool] - part["moved"]).abs().groupby(part["case"]).sum().to_numpy()
    size = part["moved"].abs().groupby(part["case"]).sum().to_numpy()
    index = np.random.default_rng(0).integers(len(size), size=(2000, len(size)))
    drawn = wrong[index].sum(1) / size[index].sum(1)
    found = intervals.estimate(wrong.sum() / size.sum(), drawn, len(size))
    return f"{found.value:.0%} [{found.low:.0%}, {found.high:.0%}]"


rows = {"AUROC": [], "off by": []}
for norm, models_of in table.groupby("norm", sort=True):
    for tool in TOOLS:
        parts = [models_of[models_of["kind"] == kind] for kind in ASKED]
        rows["AUROC"].append([norm, tool, *(ranks(part, tool).text() for part in parts)])
        if "cheat" not in tool:
            rows["off by"].append([norm, tool, *(off(part, tool) for part in parts)])
asked = table.groupby("kind")["answer"].agg(["size", "mean"])
heads = [f"{kind} ({asked['size'][kind]}, {asked['mean'][kind]:.0%} yes)" for kind in ASKED]
text = "\n".join(
    markdown([name, "tool", *(heads if name == "AUROC" else ASKED)], lines)
    for name, lines in rows.items()
)
(folder / "table.md").write_text(text, encoding="utf-8")
print(text)
print(f"{table['case'].nunique()} models, {len(table)} edges, {seconds:.0f} s of CPU time")
