"""``tl-dyck export``, ``certify`` and ``check``: from a checkpoint to a verdict, and its proof."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tl_dyck.cli.answers import Answer, Next, Rows, Saved, end_with
from tl_dyck.cli.options import (
    Certifying,
    EditOptions,
    ModelOrRNN,
    argument,
    existing,
    existing_models,
    flag,
    folder_to_write,
    option,
    out_file,
    out_folder,
    real,
    whole,
)
from tl_dyck.kit.screen import counted, in_a_line
from tl_dyck.kit.suggest import command

if TYPE_CHECKING:
    from tl_dyck.certify import Asker, Certificate, PerturbationSpace


def export(
    model: ModelOrRNN,
    out: Annotated[Path, folder_to_write("OUT", "Folder to write.")],
    onnx: Annotated[
        int | None,
        option("N", "Also the ONNX network for strings of N tokens, BOS included.", check=whole(1)),
    ] = None,
) -> Answer:
    """Export a one-layer model as the two-layer RNN that equals it, to run on torch alone.

    For example: [bold]tl-dyck export results/study:minimal-onehot/seed-0 my-rnn[/bold]

    Of an RNN that was exported, [bold]--onnx[/bold] writes the network.
    """
    existing_models(model)
    from tl_dyck.cli.certificates import load_any
    from tl_dyck.kit.files import ensure_folder
    from tl_dyck.rnn import TwoLayerRNN, export_rnn, save_rnn

    network, _ = load_any(model)
    exported = isinstance(network, TwoLayerRNN)
    if exported and onnx is None:
        raise ValueError(f"{model!r} is an exported RNN already; --onnx N writes its network")
    rnn = network if exported else export_rnn(network)
    if onnx is not None:
        from tl_dyck.certify.protocol import certifiers

        # before anything is written: onnx may not be installed
        other: Any = certifiers.get("onnx-vnnlib")
        other.save_network(rnn, ensure_folder(out) / f"network-{onnx}.onnx", onnx)
    save_rnn(rnn, out)
    config, numbers = rnn.config, sum(weight.numel() for weight in rnn.weights.values())
    yield {"config": config, "weights": numbers}
    mlp = f"{config.act_fn} MLP of {config.d_mlp}" if config.mlp else "no MLP"
    yield (
        f"{config.model_name}: {config.n_heads} head{'s' * (config.n_heads > 1)}, width "
        f"{config.d_model}, {mlp}, {numbers:,} weights; layer 1 carries "
        f"{'nothing' if config.state == 'none' else config.state}."
        f"{'' if exported else ' Compared with the model on random strings: equal.'}"
    )
    yield Saved("RNN", out)


def certify(
    model: ModelOrRNN,
    edits: EditOptions,
    certifying: Certifying,
    text: Annotated[list[str] | None, option("TEXT", "A string; repeatable.", "--text")] = None,
    file: Annotated[
        Path | None, option("FILE", "Strings, one a line; a target may follow after a tab.")
    ] = None,
    target: Annotated[
        str | None, option("NAME", "What must stay predicted. \\[default: what the model predicts]")
    ] = None,
    tight: Annotated[bool, flag("--tight", "Find the least margin, not only its sign.")] = False,
    out: Annotated[Path | None, out_file("Certificates as JSON.")] = None,
    proofs: Annotated[
        Path | None,
        out_folder("Proofs of what is proved, for tl-dyck check: N.proof of string N.", "--proofs"),
    ] = None,
) -> Answer:
    """Does a prediction survive every edit of a string? Prove it, or show where it breaks.

    For example: [bold]tl-dyck certify my-rnn --text "(()" --space pairs:2[/bold]

    A space is names of edits with budgets. [bold]pairs:2[/bold]: at most two blocks of matched
    brackets are inserted anywhere. [bold]swap:1[/bold]: two neighbours change places.
    [bold]dup:2[/bold]: two tokens are repeated. [bold]del:1[/bold]: one token of --delete goes.
    [bold]ins:1[/bold]: one of the strings of --insert comes in. [bold]sub:2[/bold]: two words
    become synonyms, of --synonyms. With commas, all of it at once: [bold]dup:1,del:1[/bold]. Edits
    that a package or a script registered have the names that it gave them.

    Exit status: 0 if all strings are proved (with --proofs: and have a proof), 1 if one is refuted,
    else 3.
    """
    existing_models(model)
    existing(file, edits.synonyms)
    from tl_dyck.certify import Asker, certify_each
    from tl_dyck.cli import certificates as asked
    from tl_dyck.kit.files import as_json, write_output

    network, language = asked.load_any(model)
    config = asked.description(network)
    rows = [(each, target) for each in text or []]
    rows += asked.read_lines(file, target) if file else []
    strings, targets = asked.read_rows(config, rows)
    space = asked.read_space(edits, config, language)
    asker = Asker(network)
    certificates = certify_each(asker, strings, targets, space, tight=tight, **certifying.how)
    shown: dict[str, Any] = {"transient": True, "enabled": len(rows) > 1}
    done, stopped, lacking = [], False, list[int]()
    try:
        for certificate in counted(certificates, "certifying", len(rows), **shown):
            done.append(certificate)  # one by one, so that an interrupt loses nothing
    except KeyboardInterrupt:
        stopped = True
    found = [_row(certificate) for certificate in done]
    yield from _said(done, found) if len(rows) > 1 else [*done, {"certificates": found}]
    if out is not None:
        write_output(out, as_json(found))
        yield Saved("File", out)
    if proofs is not None:
        how = (proofs, certifying.time_limit, model, lacking)
        yield from _proofs(asker, strings, done, space, *how)
    if stopped:
        yield f"stopped after {len(done)} of {len(rows)} strings"
        # 128 + 2, SIGINT, as shells have it
        raise typer.Exit(130)
    statuses = {certificate.status for certificate in done}
    # a proof that was asked for and not found leaves something open
    end_with("refuted" in statuses, "open" in statuses or bool(lacking))


def _proofs(
    asker: Asker,
    strings: Sequence[Any],
    done: Sequence[Certificate],
    space: PerturbationSpace,
    folder: Path,
    time_limit: float | None,
    model: str,
    lacking: list[int],
) -> Answer:
    """Write a proof of each string that is proved; `lacking` is told which have none."""
    from tl_dyck.certify.edit_proofs import prove_edits
    from tl_dyck.certify.proof import NoProofError
    from tl_dyck.kit.files import ensure_folder
    from tl_dyck.rnn import TwoLayerRNN

    rows: list[dict[str, Any]] = []
    proved = [number for number, each in enumerate(done, start=1) if each.status == "proved"]
    for number in proved:
        string, target, started = strings[number - 1], done[number - 1].target, time.perf_counter()
        try:
            proof = prove_edits(asker, string, target, space, time_limit=time_limit)
        except NoProofError as error:
            yield f"string {number} has no proof: {error}"
            lacking.append(number)
        else:
            file = proof.save(ensure_folder(folder) / f"{number}.proof")
            facts = {"bytes": file.stat().st_size, "seconds": time.perf_counter() - started}
            rows.append({"number": number, "file": file, "name": file.name, **facts})
    columns = {"": "{number}", "proof": "{name}", "bytes": "{bytes:,}", "s": "{seconds:.3g}"}
    yield ""
    yield Rows("proofs", rows, columns)
    took, kept = sum(row["seconds"] for row in rows), [row["file"] for row in rows]
    if not kept:
        yield f"no proof was written; {len(proved)} of {len(done)} strings are proved"
        return
    yield f"{len(kept)} of {len(proved)} proofs written, in {took:.3g} s."
    yield Saved("Folder", folder)
    if isinstance(asker.model_or_rnn, TwoLayerRNN):
        yield Next("To check them", command("check", *kept, "--model", model))
    else:
        yield Next("To check them", command("check", *kept))
        rnn = folder / "rnn"
        yield Next("To compare them with the model, export it", command("export", model, rnn))
        yield Next("and then", command("check", *kept, "--model", rnn))


def _row(certificate: Certificate) -> dict[str, Any]:
    """A certificate for programs, with its strings as text too."""
    write = certificate.symbols
    worst = certificate.worst and {"worst_text": write.text(certificate.worst.tokens)}
    texts = {"text": write.text(certificate.tokens), "marked": certificate.marked()}
    target = {"target_text": write.logit(certificate.target)}
    return {**texts, **target, **(worst or {}), **certificate.to_dict()}


def _said(certificates: Sequence[Certificate], found: Sequence[Mapping[str, Any]]) -> Answer:
    """Several certificates as a table."""
    columns = {"": "{number}", "verdict": "{status}", "margin": "{margin:.3g}"}
    columns |= {"s": "{seconds:.3g}", "string, and what edits make of it": "{shown}"}
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(found, start=1):
        # of what is refuted the edits that refute it are shown, of what is open the reason
        shown = row["marked" if row["status"] == "refuted" else "text"]
        why = f": {row['reason']}" if row["status"] == "open" and row["reason"] else ""
        rows.append({**row, "number": number, "shown": f"{shown}{why}"})
    yield {"certificates": found}
    yield Rows("", rows, columns)
    counts = Counter(certificate.status for certificate in certificates)
    said = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    times = sorted(certificate.seconds for certificate in certificates)
    # the last index is len - 1, and len · 95 // 100 is below len
    middle, late = times[len(times) // 2], times[len(times) * 95 // 100]
    yield (
        f"{said}. {middle * 1e3:.1f} ms a string (median), {late * 1e3:.1f} ms for 95 %. "
        "margin: proved, or the counterexample's."
    )


# --- proofs ---------------------------------------------------------------------------------------


def check(
    files: Annotated[list[Path], argument("FILE", "Proofs.")],
    model: Annotated[
        list[Path] | None,
        option("FOLDER", "Compare options and weights with the model saved there; once for each."),
    ] = None,
    beside: Annotated[
        bool, option("", "Compare with the model in the folder of each file, as a study has them.")
    ] = False,
    work: Annotated[
        float | None,
        option("WORK", "How much a proof may ask for; 1e9 is about a second.", check=real()),
    ] = None,
) -> Answer:
    """Check proofs, of whole languages, automata or edits. Nothing is searched, nothing believed.

    For example: [bold]tl-dyck check dyck.proof[/bold]

    Exit status: 0 if all are proved, 1 if one is not. The files tl_dyck/certify/check_*.py do the
    same by themselves, with numpy alone. Edits and automata are of an exported RNN, which is the
    folder to compare with.
    """
    existing(*files, *(model or ()))
    from rich.text import Text

    from tl_dyck.certify.check_language import MOST_WORK
    from tl_dyck.certify.check_model import verdict

    said: dict[str, str] = {}
    failed = False
    for file in files:
        folders = [file.parent] if beside else model or ()
        most = MOST_WORK if work is None else work
        proved, said[str(file)] = verdict(file, *folders, work=most)
        failed |= not proved
        style = "green" if proved else "red"
        yield Text.assemble(f"{in_a_line(file)}: ", (said[str(file)], style), no_wrap=True)
    yield {"proofs": said}
    end_with(failed, False)
