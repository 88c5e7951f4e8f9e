"""An adder that is right on all sums: decide it, train on the sums that are wrong, again.

Run it: ``python demos/repair_adder.py`` (a model of two digits is trained and repaired in two
minutes of one CPU core, and all 10,000 sums are run beside), or with the file of a published one

    python demos/repair_adder.py adder_311.pt --out results/adder

("AdderBoard"; two minutes; on TransformerLens 4). One layer, one head, learned positions, RMSNorm,
an MLP with GELU; a sum is written as ``12+34=640<EOS>``, its least digit first. Each round looks
for sums with small margins by descent, digit by digit; if none is wrong all sums are decided.
Then it is trained on what was found, beside sums that are drawn. The repaired model is written
into the folder: `python -m tl_dyck_papers.adders FOLDER` decides and proves it once more.
"""

# %% What is asked.
import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tl_dyck import certify_language
from tl_dyck.kit.environment import one_thread
from tl_dyck_papers.adders import SYMBOLS, low_rank, low_rank_logits, multiplied

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", nargs="?", type=Path, help="of a published adder; none: one is trained")
for name, value in {"digits": 2, "steps": 1200, "rounds": 12, "seed": 0, "first": 4000}.items():
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--seconds", type=float, default=120, help="for each decision, at most")
parser.add_argument("--out", type=Path, default=Path("results/adder"), help="folder for the model")
said = parser.parse_args()
EOS, PLUS, EQUALS = (SYMBOLS.index(each) for each in ("<EOS>", "+", "="))
MARGIN = 1.2  # that training asks of each digit; more makes the sums with small margins no fewer
State = dict[str, Tensor]


# %% Sums as tokens, and sums that are hard: carries that go far, zeros, nines.
def written(numbers: Tensor) -> Tensor:
    """``[n, 2 digits]``, the most significant first, as ``[n, place]``."""
    digits = numbers.shape[1] // 2
    a, b = numbers[:, :digits], numbers[:, digits:]
    total, carry = torch.empty(len(a), digits + 1, dtype=torch.int64), torch.zeros_like(a[:, 0])
    for place in range(digits):
        both = a[:, -1 - place] + b[:, -1 - place] + carry
        total[:, place], carry = both % 10, both // 10
    total[:, digits] = carry
    one = torch.ones_like(a[:, :1])
    return torch.cat([a, PLUS * one, b, EQUALS * one, total, EOS * one], 1)


def draw(n: int, digits: int, generator: torch.Generator) -> Tensor:
    """A third of them anywhere, a third near a carry in most places, a third zeros and nines."""

    def share() -> Tensor:
        """Of each sum's digits so many, anywhere."""
        return torch.rand(n, 2 * digits, generator=generator) < torch.rand(
            n, 1, generator=generator
        )

    found = torch.randint(10, (n, 2 * digits), generator=generator)
    kind = torch.randint(3, (n, 1), generator=generator)
    near = (9 - found[:, :digits] + torch.randint(2, (n, digits), generator=generator)).clamp(max=9)
    carries = torch.where(share()[:, digits:], near, found[:, digits:])
    carries = torch.cat([found[:, :digits], carries], 1)
    ends = torch.where(share(), torch.where(share(), 9, 0), found)
    return torch.where(kind == 0, found, torch.where(kind == 1, carries, ends))


# %% Margins of all answers, and sums where they are small.
def answers(weights: State, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Logits wherever something is asked for, ``[sum, answer, token]``, and the right tokens."""
    tokens, first = written(numbers), numbers.shape[1] + 1  # of "="
    return low_rank_logits(weights, tokens[:, :-1])[:, first:], tokens[:, first + 1 :]


def margins(weights: State, numbers: Tensor) -> Tensor:
    """``[sum, answer]``: the right token's logit less the largest other one."""
    logits, wanted = answers(weights, numbers)
    others = logits.scatter(-1, wanted[..., None], -torch.inf).amax(-1)
    return logits.gather(-1, wanted[..., None])[..., 0] - others


@torch.no_grad()
def descended(weights: State, digits: int, generator: torch.Generator) -> tuple[Tensor, float]:
    """Sums with margins below 1, of each answer from 40 starts; and the least margin seen."""
    found, least = [], torch.inf
    for answer in range(digits + 2):
        here = draw(40, digits, generator)
        for _ in range(2):
            for place in torch.randperm(2 * digits, generator=generator).tolist():
                tried = here[:, None].repeat(1, 10, 1)
                tried[:, :, place] = torch.arange(10)
                of = margins(weights, tried.flatten(0, 1))[:, answer].reshape(len(here), 10)
                best, at = of.min(1)
                here = tried[torch.arange(len(here)), at]
        found.append(here[best < 1])
        least = min(least, float(best.min()))
    return torch.cat(found), least


# %% Training, on what was found and on draws: first as usual, then for margins.
def entropy(weights: State, numbers: Tensor) -> Tensor:
    logits, wanted = answers(weights, numbers)
    return cross_entropy(logits.flatten(0, 1), wanted.flatten())


def lack(weights: State, numbers: Tensor) -> Tensor:
    """By how much margins are below what is asked for, squared."""
    return (MARGIN - margins(weights, numbers)).relu().square().sum(1).mean()


def train(
    state: State,
    steps: int,
    rate: float,
    found: Tensor,
    generator: torch.Generator,
    loss: Callable[[State, Tensor], Tensor],
) -> None:
    digits, own = found.shape[1] // 2, {name: each for name, each in state.items() if _own(name)}
    for each in own.values():
        each.requires_grad_()
    optimizer = torch.optim.Adam(own.values(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        numbers = draw(192, digits, generator)
        if len(found):
            near = found[torch.randint(len(found), (128,), generator=generator)]
            other = torch.rand(near.shape, generator=generator) < 0.15  # neighbours of it
            numbers = torch.cat([numbers, near.where(~other, draw(128, digits, generator))])
        optimizer.zero_grad()
        loss(multiplied(tied(state)), numbers).backward()
        optimizer.step()
        schedule.step()
    for each in own.values():
        each.requires_grad_(False)


def _own(name: str) -> bool:
    return name != "lm_head.weight"  # it is the embedding


def tied(state: State) -> State:
    return state | {"lm_head.weight": state["token_emb.weight"]}


@torch.no_grad()
def place_last(state: State, digits: int, generator: torch.Generator) -> None:
    """<EOS> follows whatever the digits are: of drawn vectors for its place the best is taken."""
    numbers, place = draw(200, digits, generator), 3 * digits + 2
    drawn = torch.randn(500, state["pos_emb.A"].shape[1], generator=generator)
    drawn *= 10 ** torch.rand(len(drawn), 1, generator=generator)
    drawn[0] = state["pos_emb.A"][place]
    least = []
    for state["pos_emb.A"][place] in drawn:
        least.append(float(margins(multiplied(tied(state)), numbers)[:, -1].min()))
    state["pos_emb.A"][place] = drawn[max(range(len(least)), key=least.__getitem__)]


# %% A model of our own, to begin with.
def fresh(digits: int, generator: torch.Generator, width: int = 24, hidden: int = 64) -> dict:
    n_places, ones = 3 * digits + 3, torch.ones(width)

    def matrix(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) / shape[0] ** 0.5

    block = "blocks.0"
    state = {
        "token_emb.weight": torch.randn(len(SYMBOLS), width, generator=generator),
        "pos_emb.A": torch.randn(n_places, width, generator=generator),
        "pos_emb.B": torch.eye(width),
        f"{block}.attn.qkv_A": torch.eye(width),
        f"{block}.attn.qkv_Bq": matrix(width, width),
        f"{block}.attn.qkv_Bkv": matrix(width, width),
        f"{block}.mlp.fc1.A": matrix(width, hidden),
        f"{block}.mlp.fc1.B": torch.eye(hidden),
        f"{block}.mlp.fc2.A": matrix(hidden, width),
        f"{block}.mlp.fc2.B": torch.eye(width),
        f"{block}.attn.proj.A": matrix(width, width),
        f"{block}.attn.proj.B": torch.eye(width),
        **{f"{name}.weight": ones.clone() for name in (f"{block}.ln1", f"{block}.ln2", "ln_f")},
    }
    options = {
        "d_model": width,
        "d_ff": hidden,
        "max_seq_len": n_places,
        "vocab_size": len(SYMBOLS),
    }
    return {"model_state": tied(state), "model_config": options}


# %% Rounds.
def rounds(saved: dict, digits: int) -> Iterator[str]:
    """Train and decide until it is proved; a line for each round."""
    state, generator = saved["model_state"], torch.Generator().manual_seed(said.seed)
    found = torch.empty((0, 2 * digits), dtype=torch.int64)
    for _ in range(said.rounds if said.file is None else 0):
        train(state, said.first, 3e-3, found, generator, entropy)
        with torch.no_grad():
            of = margins(multiplied(tied(state)), draw(10_000, digits, generator))
        wrong = int((of <= 0).any(1).sum())
        yield f"trained: {wrong:,} of 10,000 drawn sums are wrong"
        if wrong < 100:  # the rest is repaired
            break
    rate = 1e-3 if said.file is None else 2e-4
    for each in range(said.rounds):
        more, least = descended(multiplied(tied(state)), digits, generator)
        found = torch.cat([found, more])
        line = f"round {each}: least margin by descent {least:.3f}"
        if least > 0:
            adder = low_rank("repaired", tied(state), saved["model_config"], digits)
            done = certify_language(adder.rnn, adder.task, until="signs", time_limit=said.seconds)
            decided = [row.decided and not row.wrong for row in done.by_length]
            line += f"; {done.status}, {sum(decided)} of {len(decided)} answers proved"
            if done.status == "proved":
                yield f"{line}, least margin at least {done.margin.low:.4f}"
                return
            for row in done.by_length:
                if row.worst:
                    a_b = [token for token in row.worst.tokens if token < 10][: 2 * digits]
                    found = torch.cat([found, torch.tensor([a_b] * 20)])
        yield line
        if not each:
            place_last(state, digits, generator)
        train(state, said.steps, rate, found, generator, lack)
    raise SystemExit(f"not proved after {said.rounds} rounds; --rounds allows more")


def all_run(saved: dict, digits: int) -> float:
    """The least margin of all sums, each of which is run, in float64."""
    weights = {name: each.double() for name, each in multiplied(saved["model_state"]).items()}
    every = torch.cartesian_prod(*[torch.arange(10)] * (2 * digits))
    return min(float(margins(weights, some).min()) for some in every.split(20_000))


@one_thread()
def main() -> None:
    start, digits = time.process_time(), 10 if said.file else said.digits
    generator = torch.Generator().manual_seed(said.seed)
    saved = (
        torch.load(said.file, map_location="cpu", weights_only=True)
        if said.file
        else fresh(digits, generator)
    )
    for line in rounds(saved, digits):
        print(f"{line} ({time.process_time() - start:.0f} s)", flush=True)
    saved["model_state"] = tied(saved["model_state"])
    said.out.mkdir(parents=True, exist_ok=True)
    name = said.file.stem if said.file else f"adder_of_{digits}_digits"
    torch.save(saved, said.out / f"{name}_repaired.pt")
    print(said.out / f"{name}_repaired.pt")
    if digits <= 3:
        with torch.no_grad():
            print(f"all {100**digits:,} sums run: least margin {all_run(saved, digits):.4f}")


if __name__ == "__main__":
    main()
