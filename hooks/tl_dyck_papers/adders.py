"""Published adders, decided on all sums: ``python -m tl_dyck_papers.adders FOLDER``.

AdderBoard ranks the smallest transformers that add two numbers of ten digits, by 10,010 sums that
were drawn. The folder has weights as their authors publish them.

Knows: how those files are read, how their models compute, and how each writes a sum.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, rms_norm, scaled_dot_product_attention

from tl_dyck import certify_language, prove_language
from tl_dyck.certify import check_model
from tl_dyck.certify.language import LanguageCertificate
from tl_dyck.certify.language.automaton_certificate import count_wrong_strings
from tl_dyck.certify.proof import NoProofError
from tl_dyck.intervals import share
from tl_dyck.kit.files import read_regular
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import AutomatonTask, addition_task
from tl_dyck_papers.published import leave, options_of
from tl_dyck_papers.qwen import as_qwen, qwen, written_out
from tl_dyck_papers.sums import board_sums, written_sums

_DIGITS = 10
_DRAWN = 100_000  # sums: ten times as many as the board draws
SYMBOLS = [*"0123456789+=", "<PAD>", "<EOS>"]
"""Tokens of the adders whose weights are products of two matrices, in their order."""

_SAID = {
    "submission_49p": "100 %",
    "submission_58p_warlockee": "100 %",
    "submission_62p_warlockee": "100 %",
    "dimopep_140p": "100 %",
    **dict.fromkeys(("zcbtrak, 6", "Wonderfall, 121", "cosminscn, 130"), "100 %"),
    "adder_456_s43": "100 %",
    "adder_311": "99.999 %",
    "adder_qwen_146": "99.98 % of 10,010 sums",
}
"""What the authors say, by the name of the file, or of what was written down."""


@dataclass(frozen=True)
class Adder:
    """A published model.

    Attributes:
        name: of its file.
        n_parameters: numbers in the file, as the board counts them.
        runs: the model as its authors run it, float32: tokens to logits.
        rnn: the same model, exported.
        task: sums as it writes them.
    """

    name: str
    n_parameters: int
    runs: Callable[[Tensor], Tensor]
    rnn: TwoLayerRNN
    task: AutomatonTask


def read_adders(folder: Path) -> Iterator[Adder]:
    """The adders of a folder, the smallest file first; a line about any other file."""
    for file in sorted(folder.iterdir(), key=lambda each: (each.stat().st_size, each.name)):
        if file.suffix == ".npz":
            with np.load(io.BytesIO(read_regular(file)), allow_pickle=False) as saved:
                yield _qwen(file.stem, {name: torch.tensor(saved[name]) for name in saved})
        elif file.suffix == ".py" and "q_norm.weight" in (saved := written_out(read_regular(file))):
            yield _qwen(file.stem, *as_qwen(saved), n_parameters=_size(saved))
        elif file.suffix == ".pt":
            data = io.BytesIO(read_regular(file))
            saved = torch.load(data, map_location="cpu", weights_only=True)
            yield low_rank(file.stem, saved["model_state"], saved["model_config"], _DIGITS)
        elif file.name != "README.md":
            print(f"{file.name}: no file of weights that is known; it is left out")


def multiplied(saved: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that products of two matrices come to, by their names in a bridge.

    In double precision, then rounded: in single precision another CPU sums in another order, and
    makes other weights, of which other sums are wrong.
    """

    def product(of: str, parts: str = ".A .B") -> Tensor:
        left, right = (saved[of + part] for part in parts.split())
        return (left.double() @ right.double()).to(left.dtype)

    block = "blocks.0"
    keys = product(f"{block}.attn", ".qkv_A .qkv_Bkv").T
    return {
        "embed.weight": saved["token_emb.weight"],
        "pos_embed.weight": product("pos_emb"),
        f"{block}.ln1.weight": saved[f"{block}.ln1.weight"],
        f"{block}.attn.q.weight": product(f"{block}.attn", ".qkv_A .qkv_Bq").T,
        # keys and values are the same numbers
        f"{block}.attn.k.weight": keys,
        f"{block}.attn.v.weight": keys,
        f"{block}.attn.o.weight": product(f"{block}.attn.proj").T,
        f"{block}.ln2.weight": saved[f"{block}.ln2.weight"],
        f"{block}.mlp.in.weight": product(f"{block}.mlp.fc1").T,
        f"{block}.mlp.out.weight": product(f"{block}.mlp.fc2").T,
        "ln_final.weight": saved["ln_f.weight"],
        "unembed.weight": saved["lm_head.weight"],
    }


def low_rank_logits(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """What such a model says, as its authors run it.

    Args:
        weights: as `multiplied` gives them.
        tokens: ``[batch, place]``.

    Returns:
        ``[batch, place, token]``.
    """
    block, width = "blocks.0", weights["embed.weight"].shape[1]

    def norm(x: Tensor, which: str) -> Tensor:
        return rms_norm(x, (width,), weights[which], eps=1e-6)

    x = weights["embed.weight"][tokens] + weights["pos_embed.weight"][: tokens.shape[1]]
    read = norm(x, f"{block}.ln1.weight")
    q, k, v = (read @ weights[f"{block}.attn.{each}.weight"].T for each in "qkv")
    z = scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + z @ weights[f"{block}.attn.o.weight"].T
    hidden = gelu(norm(x, f"{block}.ln2.weight") @ weights[f"{block}.mlp.in.weight"].T)
    x = x + hidden @ weights[f"{block}.mlp.out.weight"].T
    return norm(x, "ln_final.weight") @ weights["unembed.weight"].T


def low_rank(name: str, saved: dict[str, Tensor], options: dict[str, Any], digits: int) -> Adder:
    """One head, learned positions, RMSNorm, an MLP; weights are products of two, tables too."""
    from transformer_lens import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    weights = multiplied(saved)
    width = options["d_model"]
    config = TransformerBridgeConfig(
        n_layers=1,
        n_heads=1,
        d_model=width,
        d_head=width,
        d_mlp=options["d_ff"],
        n_ctx=options["max_seq_len"],
        d_vocab=options["vocab_size"],
        act_fn="gelu",
        normalization_type="RMS",
        eps=1e-6,
        architecture="TransformerLensNative",
    )
    with torch.random.fork_rng(devices=[]):  # it draws weights, which are overwritten
        bridge = TransformerBridge.boot_native(config)  # type: ignore[attr-defined,unused-ignore]
    with torch.no_grad():
        for part, weight in bridge.state_dict().items():
            weight.copy_(weights.get(part, torch.zeros_like(weight)))  # there are no biases

    task = addition_task(digits, ("a", "+", "b", "=", "s", "<EOS>"), symbols=SYMBOLS)
    # embedding and unembedding are one table
    tied = saved["token_emb.weight"].equal(saved["lm_head.weight"])
    size = _size(saved)
    size -= saved["lm_head.weight"].numel() if tied else 0
    runs = partial(low_rank_logits, weights)
    return Adder(name, size, runs, export_rnn(bridge), task)


def _qwen(
    name: str,
    saved: dict[str, Tensor],
    added: Tensor | None = None,
    n_parameters: int | None = None,
) -> Adder:
    """Of Qwen3's shape, with rotary positions of base 3."""
    runs, rnn = qwen(saved, {"rope_type": "default", "rope_theta": 3.0}, added)
    task = addition_task(_DIGITS, "0a00b0s", least_first="abs")
    return Adder(name, _size(saved) if n_parameters is None else n_parameters, runs, rnn, task)


def _size(saved: dict[str, Tensor]) -> int:
    return sum(each.numel() for each in saved.values())


# --- what each says -------------------------------------------------------------------------------


def board_wrong(adder: Adder) -> int | None:
    """Of the board's 10,010 sums, how many it writes wrong; None if it is of other digits."""
    if adder.task.name != "addition-10":
        return None
    return wrong_of(adder, written_sums(adder.task, board_sums()))


def drawn_wrong(adder: Adder, n: int, seed: int = 0) -> int:
    """Of sums that are drawn, how many it writes wrong somewhere."""
    return wrong_of(adder, adder.task.sample(n, seed=seed)[:, 1:])  # without BOS


def wrong_of(adder: Adder, tokens: Tensor) -> int:
    """Of some sums, how many it writes wrong somewhere."""
    task, wrong = adder.task, 0
    assert task.asked is not None
    first, last = task.asked[0], task.asked[-1]
    with torch.no_grad():
        for some in tokens.split(1000):
            said = adder.runs(some[:, : last + 1])[:, first:].argmax(-1)
            wrong += int((said != some[:, first + 1 : last + 2]).any(1).sum())
    return wrong


@torch.no_grad()
def generated(adder: Adder, string: tuple[int, ...]) -> tuple[str, str]:
    """The prompt of a string, and what the model generates from it alone, by its largest logits."""
    task = adder.task
    assert task.asked is not None
    first, last = task.asked[0], task.asked[-1]
    tokens = torch.tensor([string[: first + 1]])
    prompt = task.language.to_string(tokens[0])
    for _ in range(last + 1 - first):
        tokens = torch.cat([tokens, adder.runs(tokens)[:, -1:].argmax(-1)], 1)
    return prompt, task.language.to_string(tokens[0, first + 1 :])


def decide(
    adder: Adder, until: str, time_limit: float | None, folder: Path | None = None
) -> dict[str, Any]:
    """All that is said of an adder, as JSON values; if it is right, its proof goes to a folder."""
    started = time.process_time()
    found = certify_language(adder.rnn, adder.task, until=until, time_limit=time_limit)
    seconds = time.process_time() - started
    proof = None
    if folder is not None and found.status == "proved":
        proof = prove(adder, folder, time_limit)
    refuted = [row for row in found.by_length if row.wrong]
    wrong = [generated(adder, row.worst.tokens) for row in refuted if row.worst]
    started = time.process_time()
    counts = wrong_sums(adder, [row.length for row in refuted], time_limit)
    counted_in = time.process_time() - started
    return {
        "name": adder.name,
        "parameters": adder.n_parameters,
        "authors say": _SAID.get(adder.name, ""),
        "wrong of the board's": board_wrong(adder),
        "drawn": _DRAWN,
        "drawn wrong": drawn_wrong(adder, _DRAWN),
        "status": found.status,
        "answers": _answers(found, counts),
        "wrong": share_of_any(counts),
        "counted in": counted_in,
        "wrong sums": [{"prompt": prompt, "generated": said} for prompt, said in wrong],
        "least margin": [found.margin.low, found.margin.high],
        "seconds": seconds,
        "proof": proof,
    }


def prove(adder: Adder, folder: Path, time_limit: float | None) -> dict[str, Any]:
    """Write the proof that an adder is right; what it took, and to check it, in CPU seconds."""
    started = time.process_time()
    try:
        proof = prove_language(adder.rnn, adder.task, time_limit=time_limit)
    except NoProofError as error:
        return {"said": f"not proved: {error}"}
    written = time.process_time()
    folder.mkdir(parents=True, exist_ok=True)
    path = proof.save(folder / f"{adder.name}.proof")
    # inf: the limit is for files of strangers
    said = check_model.verdict(path, work=math.inf)[1]
    return {
        "said": said,
        "bytes": path.stat().st_size,
        "written": written - started,
        "checked": time.process_time() - written,
    }


def wrong_sums(
    adder: Adder, lengths: list[int], time_limit: float | None
) -> dict[int, tuple[int, int]]:
    """After how many prefixes of each length, a sum each, it errs: at least, and at most."""
    each = None if time_limit is None else time_limit / max(1, len(lengths))
    found = count_wrong_strings(adder.rnn, adder.task, lengths, each) if lengths else {}
    return {length: (counted.low, counted.high) for length, counted in found.items()}


def share_of_any(counts: dict[int, tuple[int, int]]) -> list[int]:
    """How many sums get any wrong digit: at least the most of one answer, at most all added up."""
    return [max((low for low, _ in counts.values()), default=0), sum(h for _, h in counts.values())]


def _answers(
    found: LanguageCertificate, counts: dict[int, tuple[int, int]]
) -> list[dict[str, Any]]:
    """Of each answer: whether it is proved, bounds of the least margin, the worst string, wrong."""
    rows = []
    for row in found.by_length:
        assert row.margin is not None
        status = "refuted" if row.wrong else "proved" if row.decided else "open"
        worst = row.worst.text if row.worst else ""
        margin, wrong = [row.margin.low, row.margin.high], counts.get(row.length, (0, 0))
        rows.append({"status": status, "margin": margin, "worst": worst, "wrong": wrong})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each adder, then one for each answer."""
    text = [
        "| adder | numbers | its authors say | wrong of the board's 10,010 | of drawn sums [95 %] "
        "| on all 10²⁰ | of these wrong | a sum it writes wrong | CPU seconds, and to count "
        "| its proof |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        states, tested = [each["status"] for each in row["answers"]], row["wrong of the board's"]
        verdict = f"**{row['status']}**: of {len(states)} answers {states.count('proved')} proved"
        for other in ("refuted", "open"):
            verdict += f", {states.count(other)} {other}" if other in states else ""
        wrong = row["wrong sums"][:1]
        shown = f"`{wrong[0]['prompt']}` gives `{wrong[0]['generated']}`" if wrong else ""
        text.append(
            f"| {row['name']} | {row['parameters']} | {row['authors say']} | "
            f"{'' if tested is None else tested} | "
            f"{_drawn(row['drawn wrong'], row['drawn'])} | {verdict} | {_number(row['wrong'])} | "
            f"{shown} | {row['seconds']:.1f}, {row['counted in']:.1f} | {_proof(row['proof'])} |"
        )
    text += [
        "",
        "| adder | answer | | least margin | where it was seen | of 10²⁰ wrong |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        for at, each in enumerate(row["answers"]):
            low, high = (f"{value:.4g}" for value in each["margin"])
            wrong = "" if each["status"] == "open" else _number(each["wrong"])
            text.append(
                f"| {row['name']} | {at} | {each['status']} | {low} to {high} | "
                f"`{each['worst']}` | {wrong} |"
            )
    return "\n".join(text) + "\n"


def _number(bounds: Sequence[int]) -> str:
    """A number between two, rounded so that it stays there; exactly if they are one."""
    (low, high), rounded = bounds, Context(prec=4, rounding=ROUND_FLOOR)
    if low == high:
        return f"{low:,}"
    if high >= 10 ** (2 * _DIGITS):  # nothing bounds it from above
        return f"at least {rounded.create_decimal(low):.3e}" if low else "not bounded in time"
    up = Context(prec=4, rounding=ROUND_CEILING).create_decimal(high)
    return f"{f'{rounded.create_decimal(low):.3e}' if low else 0} to {up:.3e}"


def _drawn(wrong: int, n: int) -> str:
    """How many of drawn sums are wrong, and the exact interval of the share of all that are."""
    found = share(wrong, n)
    return f"{wrong} of {n:,} [{100 * found.low:.2g}, {100 * found.high:.2g} %]"


def _proof(found: dict[str, Any] | None) -> str:
    """A proof's file in a line, or why there is none."""
    if found is None or "bytes" not in found:
        return found["said"] if found else ""
    verdict = found["said"].partition(":")[0]
    took = f"written in {found['written']:.1f} CPU seconds, checked in {found['checked']:.1f}"
    return f"{found['bytes'] / 1000:,.0f} kB, {took}: {verdict}"


def main() -> None:
    """Decide all adders of a folder; leave a table, and the proofs of those that are right."""
    what = "Decide published adders on all sums."
    options = options_of(what, "results/adders", until="signs").parse_args()
    adders = read_adders(options.folder)
    found = (decide(each, options.until, options.time_limit, options.out) for each in adders)
    leave(options.out, found, table)


if __name__ == "__main__":
    main()
