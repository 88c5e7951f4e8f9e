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
    """Check proofs, of whole languages or of edits. Nothing is searched, nothing believed.

    For example: [bold]tl-dyck check dyck.proof[/bold]

    Exit status: 0 if all are proved, 1 if one is not. The files tl_dyck/certify/check_*.py do the
    same by themselves, with numpy alone. Edits are of an exported RNN, which is the folder to
    compare with.
    """
    existing(*files, *(model or ()))
    from rich.text import Text

    from tl_dyck.certify.check_proof import ProofError, check_file

    said: dict[str, str] = {}
    failed = False
    for file in files:
        try:
            said[str(file)] = check_file(file, *([file.parent] if beside else model or ()))
        except ProofError as error:
            said[str(file)], failed = f"not proved: {error}", True
        style = "green" if said[str(file)].startswith("proved") else "red"
        yield Text.assemble(f"{file}: ", (said[str(file)], style), no_wrap=True)
    yield {"proofs": said}
    end_with(failed, False)
