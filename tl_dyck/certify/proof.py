"""A proof as a file, and that there is none.

Knows: how facts and arrays are written; `check_language.read` reads them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tl_dyck.certify.protocol import CertifyError
from tl_dyck.files import write_output


class NoProofError(CertifyError):
    """There is no proof, or none was found; the message says why."""


@final
@dataclass(frozen=True)
class Proof:
    """A proof that a claim holds on every prefix, for `tl_dyck.certify.check_model` to check.

    Attributes:
        content: of the file.
        says: what is proved, in a sentence.
    """

    content: bytes
    says: str

    def __repr__(self) -> str:
        return f"Proof({self.says}; {len(self.content):,} bytes)"

    def save(self, path: str | Path) -> Path:
        """Write the file; see ``tl-dyck check``.

        Raises:
            OSError: it cannot be written.
        """
        write_output(path, self.content)
        return Path(path)


def pack(facts: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """A proof's file: the digest of the rest, a line of JSON, numbers."""
    facts = {**facts, "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()}}
    rest = json.dumps(facts).encode() + b"\n" + b"".join(a.tobytes() for a in arrays.values())
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
