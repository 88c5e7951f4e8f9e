"""Random questions with an answer that enumeration knows: what holds has a proof, nothing else has.

For the night.

    python tools/fuzz_proofs.py --cases 2000

Each case is made from its number alone, so one that fails is found again with
``--first NUMBER --cases 1``. Least margins are often set to ±1e-6 or ±1e-9. Each proof is checked,
and so is what it becomes when its model is changed until its claim is just false. Whole languages
are decided by `certify_language`, too, also far beyond what can be enumerated. The test suite runs
a few such cases.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from rich.progress import track

from tests.certify.oracles import PROVABLE, STATES, favouring, margins, random_rnn, strings_of
from tests.certify.proofs.changed import every
from tests.certify.proofs.common import (
    FAMILIES,
    ONE_MODEL,
    TWO_MODELS,
    agreement,
    enumerated,
    every_prefix,
    pair_of,
    rnn_of,
    unpacked,
    with_bias,
)
from tl_dyck import construct
from tl_dyck.certify import check_model
from tl_dyck.certify.automaton_proofs import _prove
from tl_dyck.certify.check_language import ProofError
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.language import certify_language
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError, Proof
from tl_dyck.certify.questions import Asker
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import DyckTask
from tools.fuzz_certify import random_space

GAPS = (1e-6, 1e-6, 1e-9, 1e-9, -1e-9, -1e-6)
SURE = 5e-10  # a claim about a language that holds by so much has a proof
SURE_OF_PATHS = 1e-7  # norms and activations there are known less well
LENGTHS = {1: 9, 2: 6, 3: 5}  # of the longest prefixes, by types of brackets
SECONDS = 20.0


def accepted(facts: dict[str, Any], arrays: dict[str, Any]) -> bool:
    """Whether a checker takes a proof."""
    try:
        check_model.check(facts, arrays)
    except (ProofError, KeyError):
        return False
    return True


def judged(make: Any, margin: float, says: str, sure: float = SURE) -> tuple[str, Proof | None]:
    """What came of looking for a proof of what holds by a margin; what must be wrong raises."""
    proof, why = None, ""
    try:
        proof = make()
    except NoProofError as error:
        why = str(error)
    if proof is None and why.startswith("none was found"):
        return "out of time", None
    if proof is None:
        assert margin < sure, f"holds by {margin}, but {why}"
        return "wrong" if margin < 0 else "within rounding", None
    assert margin > 0, f"is proved, but wrong by {margin}"
    with np.errstate(all="ignore"):
        said = check_model.check(*unpacked(proof.content))
    assert says in said, f"{says!r} is not in {said!r}"
    return "proved", proof


def refuse_false(proof: Proof | None, bias: str, token: int, by: float) -> None:
    """A proof is none of the same model with a bias that makes its claim false."""
    if proof is not None:
        facts, arrays = unpacked(proof.content)
        arrays[bias] = arrays[bias].astype("<f8")
        arrays[bias][token] += by
        with np.errstate(all="ignore"):
            assert not accepted(facts, arrays), f"{bias}[{token}] + {by} is accepted"


# --- languages ------------------------------------------------------------------------------------


def random_network(rng: random.Random, task: DyckTask, length: int) -> tuple[TwoLayerRNN, bool]:
    """A model of any family, often right or nearly so; whether boxes can prove things of it."""
    seed, n_ctx = rng.randrange(10**6), max(length + 1, 16)
    kind = rng.choice([*3 * ["construction"], "family", "heads", "gpt"])
    if kind == "construction":
        make = rng.choice([construct.balanced, construct.uniform_attention])
        rnn = export_rnn(make(task.language, n_ctx=n_ctx)).to(torch.float64)
        noise, generator = (
            rng.choice([0.0, 0.003, 0.01, 0.03, 0.1]),
            torch.Generator().manual_seed(seed),
        )
        for weight in rnn.weights.values():
            weight *= 1 + noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        fields = {**rnn.config.to_dict(), "ln_c": rng.choice([1e-5, 0.5, 1.0, 2.0])}
        return TwoLayerRNN(type(rnn.config)(**fields), rnn.weights), True
    options: dict[str, Any] = {"n_ctx": n_ctx, "d_mlp": rng.choice([4, 9])}
    family = "gpt" if kind == "gpt" else rng.choice(FAMILIES)
    if kind != "family":
        options |= {"n_heads": rng.choice([1, 2]), "act_fn": rng.choice(["relu", "gelu"])}
        options |= {"d_model": 8, "d_head": 4} if kind == "gpt" else {}
    rnn = rnn_of(family, seed, task, **options)
    rnn.W_Q.mul_(rng.choice([0.0, 0.1, 1.0]))
    boxes = kind == "family" or (rnn.config.n_heads == 1 and family != "gpt")
    return rnn, boxes and rnn.config.act_fn != "gelu"


def lead_of_bos(rnn: TwoLayerRNN, language: DyckLanguage, claim: str, length: int) -> float:
    """By how much the best token that may win beats BOS, which never may, at least."""
    found = [np.inf]
    for depth, right, row in every_prefix(rnn, language, length):
        may = [right] if depth else []
        if claim == "valid_token" and depth < language.max_depth:
            may += range(0, 2 * language.n_types, 2)
        found += [row[may].max() - row[language.bos_token]] if may else []
    return float(min(found))


def biased(rnn: TwoLayerRNN, token: int, by: float) -> TwoLayerRNN:
    """The same network with a bias for one logit."""
    copied = with_bias(rnn, 0.0, DyckLanguage(1, 1))
    copied.b_U[token] += by
    return copied


def language_case(rng: random.Random) -> str:
    """A claim about all prefixes, up to a length that can be enumerated, or far beyond it."""
    k, depth = rng.randrange(1, 4), rng.randrange(2, 6)
    task = DyckTask(name="t", n_types=k, max_depth=depth, train_lengths=(4,), long_lengths=(8, 8))
    long = rng.random() < 0.25 and k**depth <= 32
    length = rng.choice([16, 28, 40]) if long else LENGTHS[k]
    rnn, boxes = random_network(rng, task, length)
    claim = rng.choice((*ONE_MODEL, *TWO_MODELS)) if boxes else "any_token"
    if not boxes:
        length = min(length, LENGTHS[k])
    if claim == "closing_only" and k == 1:
        return "closing_only: not asked"  # the one closing bracket has no rival
    if claim in TWO_MODELS:
        return "agree: " + agreement_case(rng, task, rnn, claim)
    rnn = with_bias(rnn, rng.choice([0.0, 2.0, 8.0]), task.language)
    if length > LENGTHS[k]:
        return f"{claim}, long: " + long_case(task, rnn, claim, length)
    return f"{claim}, {'boxes' if boxes else 'paths'}: " + short_case(rng, task, rnn, claim, boxes)


def short_case(
    rng: random.Random, task: DyckTask, rnn: TwoLayerRNN, claim: str, boxes: bool
) -> str:
    """A claim that is enumerated, perhaps after BOS is made to win nearly, or just so."""
    language, length = task.language, LENGTHS[task.n_types]
    if claim != "closing_only" and rng.random() < 0.6:
        lead = lead_of_bos(rnn, language, claim, length)
        rnn = biased(rnn, language.bos_token, lead - rng.choice(GAPS))
    margin = enumerated(rnn, language, claim, length)
    by = rng.choice([None, "paths"]) if boxes and claim == "any_token" else None
    outcome, proof = judged(
        lambda: prove_language(rnn, task, length, claim, by=by, time_limit=SECONDS),
        margin,
        f"each of {asked(language, claim, length):,} ",
        SURE if boxes and by is None else SURE_OF_PATHS,
    )
    certificate = certify_language(rnn, task, length, claim, time_limit=SECONDS)
    assert (certificate.status == "proved") <= (margin > 0)
    assert (certificate.status == "refuted") <= (margin < 1e-12)
    if claim != "closing_only":
        lead = lead_of_bos(rnn, language, claim, length)
        refuse_false(proof, "b_U", language.bos_token, lead + rng.choice([1e-9, 1e-6]))
    return outcome


def asked(language: DyckLanguage, claim: str, length: int) -> int:
    """Of how many prefixes a claim speaks."""
    first = claim in ("any_token", "closing_only")
    return sum(sum(ways[first:]) for ways in language.prefixes_by_depth(length))


def long_case(task: DyckTask, rnn: TwoLayerRNN, claim: str, length: int) -> str:
    """A claim about more prefixes than can be enumerated, by `certify_language`."""
    certificate = certify_language(rnn, task, length, claim, time_limit=SECONDS)
    signs = {"proved": np.inf, "refuted": -np.inf, "open": SURE / 2}
    margin = signs[certificate.status]
    if certificate.status == "proved" and certificate.margin.low < 1e-9:
        margin = SURE / 2  # need not be found
    says = f"each of {asked(task.language, claim, length):,} prefixes"
    return judged(
        lambda: prove_language(rnn, task, length, claim, time_limit=SECONDS), margin, says
    )[0]


def agreement_case(rng: random.Random, task: DyckTask, rnn: TwoLayerRNN, claim: str) -> str:
    """A claim about two models; one token is made likelier so that there is something to prove."""
    length, language = LENGTHS[task.n_types], task.language
    rnn.W_Q.mul_(rng.choice([0.0, 1e-3, 1.0]))
    rnn = biased(rnn, rng.randrange(language.d_vocab), rng.choice([0.0, 2.0, 10.0]))
    other, how = pair_of(rnn, claim, rng.choice([1e-4, 1e-2]), rng.randrange(10**6))
    margin = agreement(rnn, other, language, length)
    outcome, proof = judged(
        lambda: prove_language(rnn, task, length, claim, time_limit=SECONDS, **how),
        margin,
        f"each of {asked(language, claim, length):,} prefixes",
    )
    if claim == "agree":
        *_, row = rng.choice([*every_prefix(other, language, length)])
        second = int(np.argsort(row)[-2])
        refuse_false(proof, "other.b_U", second, row.max() - row[second] + 1e-9)
    return outcome


# --- paths ----------------------------------------------------------------------------------------


def random_reader(rng: random.Random) -> TwoLayerRNN:
    """A network with any provable readout, up to four heads, attention up to nearly hard."""
    fields = {
        "sharpness": rng.choice([0.0, 1.0, 5.0, 200.0]),
        "scale": rng.choice([0.3, 0.6, 1.2]),
        "d_vocab_out": rng.randrange(2, 5),
        "n_heads": rng.choice([1, 1, 2, 2, 3, 4]),
        "state": rng.choice(STATES),
        "bos_token": rng.choice([None, 6]),
    }
    return random_rnn(rng.randrange(10**6), **fields | rng.choice(PROVABLE))


def held(rng: random.Random, rnn: TwoLayerRNN, strings: list[Any], make: Any, says: str) -> str:
    """A proof of some strings, whose least margin is set."""
    least = rng.choice([1e-2, *GAPS, -1e-2])
    rnn = favouring(rnn, 0, least - margins(rnn, strings, 0).min())
    margin = float(margins(rnn, strings, 0).min())
    outcome, proof = judged(lambda: make(rnn), margin, says, SURE_OF_PATHS)
    refuse_false(proof, "b_U", 0, -margin - rng.choice([1e-9, 1e-6]))
    return outcome


def edits_case(rng: random.Random) -> str:
    """Edits of a string of one to eight tokens."""
    rnn, string = random_reader(rng), tuple(rng.randrange(6) for _ in range(rng.randrange(1, 9)))
    space = random_space(rng, string)
    if space.size(string) > 400:
        return "edits: not asked"
    strings = strings_of(rnn, space, string)

    def make(rnn: TwoLayerRNN) -> Proof:
        return prove_edits(rnn, string, 0, space, time_limit=SECONDS)

    return "edits: " + held(rng, rnn, strings, make, "the largest after each of ")


def automaton_case(rng: random.Random) -> str:
    """All strings of a random automaton, of which some states ask for a logit."""
    rnn, n, tokens = random_reader(rng), rng.randrange(1, 5), rng.randrange(2, 4)
    longest = rng.randrange(2, 5)
    after = np.array([[rng.randrange(-1, n) for _ in range(tokens)] for _ in range(n)])
    answers = Answers(after, np.array([rng.choice([0, 0, NOTHING]) for _ in range(n)]))
    lengths = range(int(rnn.config.bos_token is None), longest + 1)
    strings = [string for string, _ in every(answers.after, answers.answer, lengths)]
    if not strings:
        return "automata: not asked"

    def make(rnn: TwoLayerRNN) -> Proof:
        return _prove(Asker(rnn), answers, "random", longest, SECONDS)

    return "automata: " + held(rng, rnn, strings, make, f"after each of {len(strings)} strings")


CASES = (language_case, language_case, edits_case, automaton_case)


def run_case(number: int) -> str:
    """A case, made from its number; what was asked, and what came of it."""
    rng = random.Random(number)
    return CASES[number % len(CASES)](rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    numbers, done = range(arguments.first, arguments.first + arguments.cases), Counter()
    for number in track(numbers):
        try:
            done[run_case(number)] += 1
        except Exception:
            done["FAILED"] += 1
            print(f"case {number}\n{traceback.format_exc(limit=-3)}", flush=True)
    for outcome, times in sorted(done.items()):
        print(f"{times:6,}  {outcome}")
    sys.exit(done["FAILED"] > 0)


if __name__ == "__main__":
    main()
