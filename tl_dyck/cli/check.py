"""``tl-dyck check``: do files prove what they claim?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tl_dyck.cli.answers import Answer, end_with
from tl_dyck.cli.early import existing
from tl_dyck.cli.options import argument, option


def check(
    files: Annotated[list[Path], argument("FILE", "Proofs.")],
    model: Annotated[
        list[Path] | None,
        option("FOLDER", "Compare options and weights with the model saved there; once for each."),
    ] = None,
    beside: Annotated[
        bool, option("", "Compare with the model in the folder of each file, as a study has them.")
    ] = False,
) -> Answer:
    """Check proofs, of whole languages, automata or edits. Nothing is searched, nothing believed.

    For example: [bold]tl-dyck check dyck.proof[/bold]

    Exit status: 0 if all are proved, 1 if one is not. The files tl_dyck/certify/check_*.py do the
    same by themselves, with numpy alone. Edits and automata are of an exported RNN, which is the
    folder to compare with.
    """
    existing(*files, *(model or ()))
    from rich.text import Text

    from tl_dyck.certify.check_model import verdict

    said: dict[str, str] = {}
    failed = False
    for file in files:
        proved, said[str(file)] = verdict(file, *([file.parent] if beside else model or ()))
        failed |= not proved
        style = "green" if proved else "red"
        yield Text.assemble(f"{file}: ", (said[str(file)], style), no_wrap=True)
    yield {"proofs": said}
    end_with(failed, False)
