"""Hand the question to another verifier, as an ONNX network and a VNN-LIB property (see VNN-COMP).

Only spaces that keep the length can be written so (substitutions, swaps): the network is unrolled
for one length. The property's box holds, at each position, the embeddings of all tokens that any
string of the space has there. So it ignores budgets and holds more than strings: "unsat" certifies,
"sat" says nothing about strings.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tl_dyck.certify import Certificate, CertifyError, PerturbationSpace, conclude
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.network import Network
from tl_dyck.kit.files import ensure_folder, read_text, write_bytes
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck_hooks.certifiers.onnx import save_onnx
from tl_dyck_hooks.certifiers.vnnlib import embedding_box, vnnlib_property

# VNN-COMP's answers, and the words that some tools use for them
_ANSWERS = {word: word for word in ("unsat", "sat", "timeout", "unknown")}
_ANSWERS |= {"holds": "unsat", "violated": "sat"}


def onnx_vnnlib(
    rnn: TwoLayerRNN,
    tokens: tuple[int, ...],
    target: int,
    space: PerturbationSpace,
    *,
    time_limit: float | None = None,
    command: Sequence[str] | None = None,
    folder: str | Path | None = None,
) -> Certificate:
    """Write the files and, if there is a verifier, run it: a `tl_dyck.certify.Certifier`.

    The verifier is given what is left of the time limit, and stopped after that. Its `command` is
    an argument list, in which {onnx}, {vnnlib}, {results} and {timeout} are replaced; it is run
    without a shell. Its answer (sat, unsat, timeout, unknown) is the first word of the results file
    if the command names it, else the last such word on its standard output. Files go to `folder`,
    or to a new temporary one, which is kept; the reason of an open one names it.

    Returns:
        "proved" on unsat, with a margin that is positive but not quantified: the verdict is as
        good as the verifier's arithmetic on the float32 network. "refuted" only if the original
        string is.

    Raises:
        CertifyError: the space changes the length, or the command cannot be started.
        MissingPackageError: the extra tl-dyck[onnx] is not installed.
    """
    started, deadline = time.perf_counter(), Deadline.after(time_limit)
    allowed = [[token] for token in Network(rnn).prefix] + _tokens_by_position(tokens, space)
    place = Path(tempfile.mkdtemp(prefix="tl-dyck-")) if folder is None else ensure_folder(folder)
    network = save_onnx(rnn, place / "network.onnx", len(allowed))
    text = vnnlib_property(*embedding_box(rnn, allowed), target, rnn.config.d_vocab_out)
    prop = place / "property.vnnlib"
    write_bytes(prop, text.encode())
    where = f"the files are {network} and {prop}"
    answer, reason = "unknown", "no verifier command was given"
    if command is not None:
        answer, reason = _ask(command, network, prop, place / "results.txt", time_limit, deadline)
    if answer == "sat":
        reason = "the verifier found a point of the embedding box, which need not be a string"
    return conclude(
        rnn,
        tokens,
        target,
        space,
        certifier="onnx-vnnlib",
        lower=math.ulp(0.0) if answer == "unsat" else -math.inf,
        string=tokens,
        started=started,
        reason=f"{reason}; {where}",
    )


onnx_vnnlib.save_network = save_onnx  # type: ignore[attr-defined]  # for `tl-dyck export --onnx`


def _tokens_by_position(tokens: tuple[int, ...], space: PerturbationSpace) -> list[list[int]]:
    found = [{token} for token in tokens]
    for option in space.lattice(tokens).options:
        if len(option.emits) != option.end - option.start:
            raise CertifyError(
                f"onnx-vnnlib needs a space that keeps the length, but {space} can turn "
                f"{option.end - option.start} tokens at position {option.start} into "
                f"{len(option.emits)}; use another certifier."
            )
        for position, token in enumerate(option.emits, start=option.start):
            found[position].add(token)
    return [sorted(here) for here in found]


def _ask(
    command: Sequence[str],
    network: Path,
    prop: Path,
    results: Path,
    time_limit: float | None,
    deadline: Deadline,
) -> tuple[str, str]:
    """Run the verifier for as long as is left: its answer, and why it is none."""
    if isinstance(command, str) or not command:
        raise CertifyError(
            f"command must be a list of arguments, such as ['verifier', '{{onnx}}'], "
            f"not {command!r}."
        )
    left = None if time_limit is None else deadline.left
    if left is not None and left <= 0:
        reached = f"the time limit of {time_limit:g} s was reached"
        return "timeout", f"{reached} before the verifier was started; raise it"
    names = {
        "{onnx}": str(network),
        "{vnnlib}": str(prop),
        "{results}": str(results),
        "{timeout}": "" if left is None else f"{left:g}",
    }
    arguments = list(command)
    for placeholder, value in names.items():
        arguments = [argument.replace(placeholder, value) for argument in arguments]
    results.unlink(missing_ok=True)
    quiet: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(arguments, timeout=left, check=False, **quiet)
    except subprocess.TimeoutExpired:
        return "timeout", f"the verifier was stopped after {time_limit:g} s"
    except OSError as error:
        raise CertifyError(f"the verifier {arguments[0]!r} cannot be started: {error}") from error
    words = read_text(results).split()[:1] if results.exists() else done.stdout.split()[::-1]
    answer = next((_ANSWERS[word.lower()] for word in words if word.lower() in _ANSWERS), None)
    if answer is None:
        said = (done.stderr or done.stdout).strip()[-300:]
        return "unknown", f"the verifier gave no verdict (exit status {done.returncode}): {said}"
    return answer, f"the verifier answered {answer}"
