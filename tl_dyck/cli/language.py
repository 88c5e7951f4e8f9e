"""``tl-dyck certify-language``: a claim about every prefix of a language."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

from tl_dyck.cli.answers import Answer, Next, Saved, end_with
from tl_dyck.cli.options import (
    ModelOrRNN,
    Processes,
    existing_models,
    option,
    out_file,
    real,
    some_seconds,
    whole,
)
from tl_dyck.kit.suggest import command


@final
@dataclass(frozen=True, kw_only=True)
class Claimed:
    """The options that say what is claimed."""

    claim: Annotated[
        str,
        option(
            "NAME",
            "any_token, closing_only, valid_token, allowed, total_variation, kl, agree, head.",
            "--property",
        ),
    ] = "any_token"
    epsilon: Annotated[float | None, option("X", "Of total_variation and kl.", check=real())] = None
    threshold: Annotated[
        float | None, option("X", "Of allowed, for logits. \\[default: 0]", check=real(-math.inf))
    ] = None
    other: Annotated[str | None, option("MODEL", "The other model, of agree.")] = None
    head: Annotated[int | None, option("N", "Of head.", check=whole())] = None
    layer: Annotated[
        int | None, option("N", "Of the head, from 0, in models of several.", check=whole())
    ] = None


def certify_language(
    model: ModelOrRNN,
    claimed: Claimed,
    length: Annotated[
        int, option("N", "Every prefix up to it.", "--length", "-n", check=whole(1))
    ] = 28,
    shortest: Annotated[int, option("N", "And from it on.", check=whole())] = 0,
    task: Annotated[
        str | None, option("NAME", "\\[default: the model's language]", "--task", "-t")
    ] = None,
    until: Annotated[str | None, option("WHEN", "counted, likeliest, signs, refuted.")] = None,
    sample: Annotated[
        list[int] | None,
        option("N", "Sample the error at this length too; may be repeated.", check=whole(1)),
    ] = None,
    time_limit: Annotated[
        float | None, option("S", "Seconds; and as many for --sample.", check=some_seconds)
    ] = None,
    jobs: Processes = 1,
    out: Annotated[Path | None, out_file("The certificate as JSON.")] = None,
    proof: Annotated[
        Path | None, out_file("If proved: a proof for tl-dyck check.", "--proof")
    ] = None,
) -> Answer:
    """Is a claim true on every prefix of the language? Prove it, or show the likeliest error.

    For example:
    [bold]tl-dyck certify-language results/study:minimal-onehot/seed-0 -n 28 --sample 450[/bold]

    Exit status: 0 if it is proved, 1 if it is refuted, 3 if it is open, or --proof finds no proof.
    """
    existing_models(model, claimed.other)
    from tl_dyck.certify.language import certify_language as decide
    from tl_dyck.certify.language import sample_error
    from tl_dyck.cli.certificates import load_any
    from tl_dyck.kit.files import as_json, write_output
    from tl_dyck.kit.screen import share_bar

    network, language = load_any(model)
    claim, limit = claimed.claim, {"time_limit": time_limit}
    # a pair names a head of a model of several layers
    head = claimed.head if claimed.layer is None else (claimed.layer, claimed.head)
    about: dict[str, Any] = {"epsilon": claimed.epsilon, "head": head, **limit}
    about["threshold"] = claimed.threshold
    if claimed.other is not None:
        about["other"] = load_any(claimed.other)[0]
    if shortest > length:
        raise ValueError(f"--shortest {shortest} is above --length {length}")
    asked = _asked(task, language, model)
    # first, since it is quick: what it refuses is refused before the long part
    sampled = sample_error(network, asked, sample, claim, **about) if sample else ()
    how: dict[str, Any] = {**about, "until": until, "n_jobs": jobs}
    with share_bar("deciding", transient=True) as progress:
        lengths = range(shortest, length + 1)
        found = decide(network, asked, lengths, claim, progress=progress, **how)
    yield {"verdict": found, "sampled": sampled}
    yield found
    yield from (f"error at {each.length}: {each}" for each in sampled)
    if out is not None:
        content = found.to_dict() | {"sampled": [each.to_dict() for each in sampled]}
        write_output(out, as_json(content))
        yield Saved("Certificate", out)
    unproved = False
    if proof is not None and found.status == "proved":
        pair = {name: each for name, each in about.items() if name != "epsilon"}
        unproved = yield from _prove(proof, network, asked, length, claim, **pair)
    end_with(found.status == "refuted", found.status == "open" or unproved)


def _prove(file: Path, *asked: Any, **how: Any) -> Generator[Any, None, bool]:
    """Write a proof; returns whether there is none."""
    from tl_dyck.certify.language_proofs import prove_language
    from tl_dyck.certify.proof import NoProofError

    try:
        proved = prove_language(*asked, **how)
    except NoProofError as error:
        yield f"it has no proof: {error}"
        return True
    yield Saved("Proof", proved.save(file))
    yield Next("To check it", command("check", file))
    return False


def _asked(task: str | None, language: Any, model: str) -> Any:
    """The task of that name, or else of the model's language: of brackets, complete strings."""
    from tl_dyck.tasks import load_task
    from tl_dyck.tasks.names import task_of

    if task is not None:
        return load_task(task)
    if language is None:
        raise ValueError(f"{model!r} does not say what its language is; give --task")
    return task_of(language)
