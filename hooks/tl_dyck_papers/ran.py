"""Published models that look ahead, run on every string: ``python -m tl_dyck_papers.ran FOLDER``.

The folder has ARENA's ``brackets_model_state_dict.pt``. Two programs are compiled here, as "Tracr"
(Lindner et al. 2023, arXiv 2301.05062) says; its own package is not needed.

Knows: how tracr compiles the width of a selector, what these models read, and what is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tl_dyck import certify_language, load_arena
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.tasks import AutomatonTask
from tl_dyck_papers.published import leave, options_of

_COLD = 100.0  # what scores of selected keys are larger by
_EXACTNESS = 100.0  # mlp_exactness, tracr's default: a step is 1/100 wide
_LETTERS = "abc"


@dataclass(frozen=True)
class Whole:
    """A model that says something of a whole string.

    Attributes:
        name: how people call it.
        task: its strings, and what is right.
        says: symbols' ids ``[n, length]`` to logits ``[n, answers]``.
        longest: length that it reads.
    """

    name: str
    task: AutomatonTask
    says: Callable[[Tensor], Tensor]
    longest: int


def arena(file: Path) -> Whole:
    """ARENA's classifier: the brackets stand between [start] and [end], and [start] is read."""
    model = load_arena(file)

    def says(tokens: Tensor) -> Tensor:
        start, end = (torch.full((len(tokens), 1), token) for token in (0, 2))
        logits: Tensor = model(torch.cat([start, tokens + 3, end], 1))[:, 0]
        return logits

    def moves(depth: int) -> dict[str, int]:
        """Of a depth; -1 for good where a bracket closed what was not open."""
        return {"(": -1, ")": -1} if depth < 0 else {"(": depth + 1, ")": depth - 1}

    longest = int(model.cfg.n_ctx) - 2
    task = AutomatonTask(
        name="balanced brackets", symbols=["(", ")"], start=0, moves=moves,
        answer=lambda depth: int(depth == 0), train_lengths=[longest], long_lengths=[1, longest],
    )  # fmt: skip
    return Whole("ARENA's bracket classifier", task, says, longest)


def selector_width(
    selected: Tensor, longest: int, exactness: float = _EXACTNESS
) -> HookedTransformer:
    """How many keys each query selects, as tracr compiles it.

    A head attends to BOS and all selected keys alike, and reads off that it attended to BOS by
    1/(1 + n). An MLP turns that into n: between two of these numbers there is a step, two ReLUs
    that are 1/exactness apart.

    Args:
        selected: ``[query, key]`` whether a symbol selects another.
        longest: the largest n.
        exactness: tracr's ``mlp_exactness``.

    Returns:
        A model that reads symbols, and BOS first, and says n at each symbol.
    """
    n, steps = len(selected), longest
    at_bos, share, counts = n, n + 1, n + 2  # directions of the stream
    width = counts + longest + 1
    model = HookedTransformer(
        HookedTransformerConfig(
            n_layers=1, n_heads=1, d_model=width, d_head=n + 1, d_mlp=2 * steps, act_fn="relu",
            n_ctx=longest + 1, d_vocab=n + 1, d_vocab_out=longest + 1, normalization_type=None,
            attention_dir="bidirectional", init_weights=False, device="cpu",
        )
    )  # fmt: skip
    attn, mlp = model.blocks[0].attn, model.blocks[0].mlp
    values = 1 / (1 + torch.arange(longest + 1, dtype=torch.float64))
    thresholds = (values[1:] + values[:-1]) / 2  # of n and n + 1
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.embed.W_E[: n + 1, : n + 1] = torch.eye(n + 1)
        scale = _COLD * attn.attn_scale
        attn.W_Q[0, :n, :n] = scale * selected.to(attn.W_Q.dtype)
        attn.W_Q[0, :, n] = scale  # all select BOS
        attn.W_K[0, : n + 1] = torch.eye(n + 1)
        attn.W_V[0, at_bos, 0] = 1
        attn.W_O[0, 0, share] = 1
        mlp.W_in[share] = exactness
        mlp.b_in[:steps] = 1 - exactness * thresholds
        mlp.b_in[steps:] = -exactness * thresholds
        for k in range(steps):  # above the threshold it is k, below it k + 1
            for half, sign in ((k, 1), (k + steps, -1)):
                mlp.W_out[half, counts + k] = sign
                mlp.W_out[half, counts + k + 1] = -sign
        model.unembed.W_U[counts:] = torch.eye(longest + 1)
        model.unembed.b_U[longest] = 1  # below all thresholds
    return model


def last_of(model: HookedTransformer, bos: int, tokens: Tensor) -> Tensor:
    """What a model that starts with BOS says at the last symbol."""
    logits: Tensor = model(torch.nn.functional.pad(tokens, (1, 0), value=bos))[:, -1]
    return logits


def compiled(longest: int = 12) -> Iterator[Whole]:
    """`hist`, how often the last letter is there, and `count`, how many are a."""
    n = len(_LETTERS)
    lengths: dict[str, Any] = {"train_lengths": [longest], "long_lengths": [1, longest]}

    def moves(state: tuple[tuple[int, ...], int]) -> dict[str, Any]:
        seen = state[0]
        return {
            letter: ((*seen[:at], seen[at] + 1, *seen[at + 1 :]), at)
            for at, letter in enumerate(_LETTERS)
        }

    hist = AutomatonTask(
        name="hist", symbols=[*_LETTERS], start=((0,) * n, -1), moves=moves,
        answer=lambda state: None if state[1] < 0 else state[0][state[1]], **lengths,
    )  # fmt: skip
    count = AutomatonTask(
        name="count", symbols=[*_LETTERS], start=0, answer=lambda seen: seen,
        moves=lambda seen: {letter: seen + (letter == "a") for letter in _LETTERS}, **lengths,
    )  # fmt: skip
    of_a = torch.zeros(n, n)
    of_a[:, 0] = 1
    for task, selected in ((hist, torch.eye(n)), (count, of_a)):
        says = partial(last_of, selector_width(selected, longest), n)
        yield Whole(f"tracr's `{task.name}`", task, says, longest)


def decide(whole: Whole, most_run: int, until: str, time_limit: float | None) -> dict[str, Any]:
    """All that is said of a model, as JSON values."""
    started = time.process_time()
    how: dict[str, Any] = {"most_run": most_run, "until": until, "time_limit": time_limit}
    found = certify_language(whole.says, whole.task, range(1, whole.longest + 1), **how)
    seconds = time.process_time() - started
    right = [row for row in found.by_length if row.length <= found.proved_to]
    run_to = max((row.length for row in found.by_length if row.decided), default=0)
    wrong = found.shortest
    return {
        "name": whole.name,
        "status": found.status,
        "right to": found.proved_to,
        "run to": run_to,
        "strings": sum(row.prefixes for row in right),
        "least margin": min((row.margin.high for row in right if row.margin), default=None),
        "shortest": None if wrong is None else wrong.text,
        "is shortest": found.is_shortest,
        "says": None if wrong is None else wrong.predicted,
        "right": None if wrong is None else " ".join(wrong.may_follow),
        "drawn": [each.to_dict() for each in found.drawn],
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each model."""
    text = [
        "| model | | right on every string to length | so many | least margin there | shortest "
        "wrong string | it says | right is | drawn strings that are wrong | CPU seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row["shortest"]
        known = "" if found is None or row["is shortest"] else " (a shorter one may exist)"
        drawn = "; ".join(
            f"{each['wrong']} of {each['n']:,} of length {each['length']}"
            for each in row["drawn"][-1:]
        )
        margin = "" if row["least margin"] is None else f"{row['least margin']:.4g}"
        text.append(
            f"| {row['name']} | **{row['status']}** | {row['right to']} | {row['strings']:,} | "
            f"{margin} | {'' if found is None else f'`{found}`'}{known} | "
            f"{row['says'] or ''} | {row['right'] or ''} | {drawn} | {row['seconds']:.0f} |"
        )
    return "\n".join(text) + "\n"


def main() -> None:
    """Run the models of a folder, and those compiled here, on every string; leave a table."""
    parser = options_of("Run published models on every string.", "results/ran", until="signs")
    parser.add_argument("--most-run", type=int, default=600_000, help="strings of each model")
    options = parser.parse_args()
    files = [options.folder / "brackets_model_state_dict.pt"]
    models = [*(arena(file) for file in files if file.is_file()), *compiled()]
    how = options.most_run, options.until, options.time_limit
    leave(options.out, (decide(each, *how) for each in models), table)


if __name__ == "__main__":
    main()
