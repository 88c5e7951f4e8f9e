"""Is what tools say of edges true? Where a norm stands behind the heads, and where none does.

Run it: ``python demos/edges_behind_a_norm.py`` (two minutes on 2 CPU cores).

Every head gets what it puts out on the string with all bracket types exchanged. The truth is how
far that moves the mean logit difference. Tools say the same by what they patch: the head's output;
what the norm hands on; or edges, by adding the change of `hook_result` to what later readers read,
which is what the stream becomes if it is a sum. Gemma-2, OLMo-2 and Eq. 6 have a norm in between.

A second table holds the order in which tools put heads against what is enumerated: does the head
carry the answer on any prefix?
"""

# %% What each tool says of the head, beside the truth.
import copy
import sys

import pandas as pd
import torch

from tl_dyck.judge import Case, make_case
from tl_dyck.judge.facts import Enumeration, head_facts
from tl_dyck.judge.scores import score_table
from tl_dyck.reading.interventions import change_activation
from tl_dyck_hooks.methods.shared import activations

n_cases = int(sys.argv[1]) if len(sys.argv) > 1 else 12


def moved(case: Case, layer: int, head: int) -> dict[str, float]:
    """The change of the mean logit difference, and what tools say that it is."""
    model, tokens = case.model, case.tokens
    right = case.right
    z, added = f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_attn_out"
    clean_z, clean_added = activations(model, tokens, [z, added])
    other = activations(model, case.partners, [z])[0]
    new = clean_z.clone()
    new[:, :, head] = other[:, :, head]
    change = (new - clean_z)[:, :, head] @ model.blocks[layer].attn.W_O[head].detach()

    def answer(hooks: list, grad: bool = False) -> torch.Tensor:
        with torch.set_grad_enabled(grad):
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        return case.difference(logits, right).sum() / (right >= 0).sum()

    def slope(name: str, value: torch.Tensor) -> torch.Tensor:
        """The gradient of the answer by an activation."""
        leaf = value.clone().requires_grad_()
        (found,) = torch.autograd.grad(
            answer(change_activation(name, lambda _: leaf), grad=True), leaf
        )
        return found

    with torch.no_grad():
        hooks = [(z, lambda _, hook: new)]
        with model.hooks(fwd_hooks=hooks):
            _, after = model.run_with_cache(tokens)
    base = answer([])
    return {
        "true": float(answer(hooks) - base),
        "head's output": float(answer(change_activation(z, lambda _: new)) - base),
        "what the norm hands on": float(
            answer(change_activation(added, lambda _: after[added])) - base
        ),
        "sum of edges": float(answer(change_activation(added, lambda x: x + change)) - base),
        "attribution (first order)": float((slope(z, clean_z) * (new - clean_z)).sum()),
        "edge attribution (EAP)": float((slope(added, clean_added) * change).sum()),
    }


def without_norm(case: Case) -> Case:
    """The same weights, but what heads write goes into the stream as it is."""
    model = copy.deepcopy(case.model)
    for block in model.blocks:
        block.ln1_post = torch.nn.Identity()
    return Case(model, case.task, case.length, case.tokens)


# %% Models with a norm behind the heads, and without: the same readers, and trained ones.
rows = []
for index in range(n_cases):
    posed = {}
    for reader in ("linear", "step"):
        kind = ("uniform", "balanced", "stack", "backup")[index % 4]
        case, _ = make_case(kind, index, reader=reader, drift=0.0)
        posed[f"norm behind heads, {reader} reader"] = case
        posed[f"no norm behind heads, {reader} reader"] = without_norm(case)
    for block, name in (("eq6", "norm behind heads, trained"), ("gpt", "pre-norm, trained")):
        posed[name], _ = make_case("trained", index, block=block)
    for name, case in posed.items():
        world = Enumeration(case.model, case.task.language, case.length, case.task.distribution)
        for fact in head_facts(world):
            if fact.question.kind != "carries":
                continue
            found = moved(case, *fact.question.target)
            true = found.pop("true")
            for tool, said in found.items():
                row = {"models": name, "method": tool, "case": index, "question": "carries"}
                row["target"] = " ".join(map(str, fact.question.target))
                # of a size with the wrong sign all is wrong, and the size besides
                sizes = {"size": abs(true), "said": said if true > 0 else -said}
                rows.append({**row, "answer": fact.answer, "score": round(abs(said), 9), **sizes})

# %% How far from the truth, as a share of it; and AUROC. With 95 % intervals over models.
table = pd.DataFrame(rows).assign(seconds=0.0, passes=0.0, backward=0.0)
tools = list(table["method"].unique())
groups = dict(list(table.groupby("models")))
scores = {name: score_table(group).droplevel("question") for name, group in groups.items()}
for what, form in (("off", ".0%"), ("auroc", ".2f")):
    print("| models | " + " | ".join(tools) + " |")
    print("|---" * (1 + len(tools)) + "|")
    for name, found in scores.items():
        cells = []
        for _, row in found.loc[tools].iterrows():
            value, low, high = (row[what + end] for end in ("", "_low", "_high"))
            exact = what == "off" and value < 1e-9
            cells.append("exact" if exact else f"{value:{form}} [{low:{form}}, {high:{form}}]")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()
