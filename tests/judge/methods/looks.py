"""What methods say of heads by patterns, weights and probes, found another way."""

from __future__ import annotations

import numpy as np

from tests.judge.methods.cases import network
from tests.judge.methods.heads import each_head, run
from tests.judge.methods.network import stacks
from tl_dyck.judge import Case

Array = np.ndarray

# --- patterns and weights -------------------------------------------------------------------------


def on_top(case: Case) -> Array:
    """Weight on the last open bracket, mean over all closing brackets after which one is open."""
    pattern = run(case).pattern
    rows = case.tokens.tolist()
    looks = [
        (string, query, held[-1])
        for string, row in enumerate(rows)
        for query, held in enumerate(stacks(row))
        if query > 0 and row[query] % 2 == 1 and held
    ]

    return each_head(case, lambda i, j: sum(float(pattern[i][j][at]) for at in looks) / len(looks))


def sharp(case: Case) -> Array:
    pattern = run(case).pattern

    def share(layer: int, head: int) -> float:
        entropy = even = 0.0
        for string in pattern[layer][head]:
            for query, row in enumerate(string):
                entropy -= sum(w * np.log(w) for w in row[: query + 1] if w > 0)
                even += np.log(query + 1)
        return float(1 - entropy / even)

    return each_head(case, share)


def copied(case: Case) -> Array:
    """The eigenvalues of W_O W_U W_E W_V, which are those of the large circuit, but for zeros."""
    w, table = network(case.model).w, network(case.model).table
    embed = []
    for token in table:
        reached = [row for row in token if np.abs(row).sum() > 0]
        embed.append(sum(reached) / len(reached))

    def score(layer: int, head: int) -> float:
        name = f"blocks.{layer}.attn."
        circuit = w[name + "W_O"][head] @ w["unembed.W_U"] @ np.array(embed) @ w[name + "W_V"][head]
        values = np.linalg.eigvals(circuit)
        total = np.abs(values).sum()
        return float(abs(values.sum().real) / total) if total > 1e-9 else 0.0

    return each_head(case, score)


def along_paths(case: Case) -> Array:
    """Norms of one path at a time: directly to the logits, or by one unit of an MLP."""
    w, cfg = network(case.model).w, case.model.cfg
    told = w["unembed.W_U"][:, 1 : 2 * case.task.n_types : 2]
    told = told - told.mean(1, keepdims=True)

    def size(layer: int, head: int) -> float:
        name = f"blocks.{layer}.attn."
        moved = w[name + "W_V"][head] @ w[name + "W_O"][head]
        total = np.linalg.norm(moved @ told)
        for later in range(layer, cfg.n_layers):
            reads, writes = w[f"blocks.{later}.mlp.W_in"], w[f"blocks.{later}.mlp.W_out"]
            for unit in range(cfg.d_mlp):
                through = np.outer(moved @ reads[:, unit], writes[unit] @ told)  # of rank one
                total += np.linalg.norm(through)
        return float(total)

    found = each_head(case, size)
    return found / found.max()


def composed(case: Case) -> Array:
    """Elhage et al.'s three scores by numpy's norms; NaN in the last layer."""
    w, cfg = network(case.model).w, case.model.cfg

    def matrix(layer: int, head: int, a: str, b: str) -> Array:
        name = f"blocks.{layer}.attn.W_"
        first, second = w[name + a][head], w[name + b][head]
        return first @ (second if b == "O" else second.T)

    def largest(layer: int, head: int) -> float:
        ours, found = matrix(layer, head, "V", "O"), [np.nan]
        for later in range(layer + 1, cfg.n_layers):
            for other in range(cfg.n_heads):
                for a, b in ("QK", "KQ", "VO"):
                    theirs = matrix(later, other, a, b)
                    size = np.sqrt((ours**2).sum()) * np.sqrt((theirs**2).sum())
                    both = np.sqrt(((ours @ theirs) ** 2).sum())
                    found.append(both / size if size > 1e-12 else 0.0)
        return float(max(found[1:], default=np.nan))

    return each_head(case, largest)


# --- probes ---------------------------------------------------------------------------------------


def probed(case: Case, what: str, read: Array) -> float:
    """Least squares of one-hot labels, regularised by rows of zeros; tested on the second half."""
    rows, half = case.tokens.tolist(), len(case.tokens) // 2
    parts: list[tuple[list[Array], list[int]]] = [([], []), ([], [])]
    for string, row in enumerate(rows):
        for index, held in enumerate(stacks(row)):
            if what == "depth":
                label = len(held)
            elif index and row[index] % 2 == 1 and held:
                label = row[held[-1]] // 2
            else:
                continue
            parts[string >= half][0].append(read[string, index])
            parts[string >= half][1].append(label)
    (x, told), (y, wanted) = ((np.array(a), np.array(b)) for a, b in parts)
    centre, scale = x.mean(0), np.maximum(x.std(0, ddof=1), 1e-9)
    x, y = (np.hstack([(part - centre) / scale, np.ones((len(part), 1))]) for part in (x, y))
    n, d = x.shape
    targets = np.eye(max([*told, *wanted]) + 1)[told]
    above = np.vstack([x, np.sqrt(1e-3 * n) * np.eye(d)])
    below = np.vstack([targets, np.zeros((d, targets.shape[1]))])
    weights = np.linalg.lstsq(above, below, rcond=None)[0]
    return float(((y @ weights).argmax(1) == wanted).mean())


def probed_heads(case: Case, what: str) -> Array:
    z = run(case).z
    return each_head(case, lambda i, j: probed(case, what, z[i][j]))
