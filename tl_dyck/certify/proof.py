"""A proof as a file, and that there is none.

Knows: how facts and arrays are written (`check_language.read` reads them), and what ends a search
without a proof.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from tl_dyck.certify.check_language import ProofError
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.kit.files import write_output


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


@contextlib.contextmanager
def searching(time_limit: float | None) -> Iterator[None]:
    """A search for a proof, with the checker's own bounds; its deadline is the caller's.

    Raises:
        NoProofError: the time is over, or the checker cannot know some number.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except OutOfTime:
        raise NoProofError(f"none was found in {time_limit} s") from None
    except ProofError as error:
        raise NoProofError(str(error)) from None


def in_preorder(
    whole: Any, node: Callable[[Any], tuple[list[int], list[Any]]], deadline: Deadline
) -> list[int]:
    """The nodes of a tree: of the whole, then of the parts that `node` says it has, in order."""
    found: list[int] = []
    todo = [whole]
    while todo:
        deadline.check()
        said, parts = node(todo.pop())
        found += said
        todo += parts[::-1]
    return found


def pack(facts: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """A proof's file: the digest of the rest, a line of JSON, numbers."""
    facts = {**facts, "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()}}
    rest = json.dumps(facts).encode() + b"\n" + b"".join(a.tobytes() for a in arrays.values())
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
