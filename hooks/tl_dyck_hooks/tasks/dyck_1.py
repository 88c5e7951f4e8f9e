"""Dyck-1 of any depth: one counter, without a largest value."""

from collections.abc import Mapping

from tl_dyck.tasks import AutomatonTask


def _moves(depth: int) -> Mapping[str, int]:
    return {"(": depth + 1, ")": depth - 1} if depth else {"(": 1}


def _weight(depth: int, symbol: str) -> float:
    """Close with probability 0.6 wherever that is possible."""
    return 0.6 if symbol == ")" else 0.4 if depth else 1.0


def _counted(depth: int, symbol: str) -> bool:
    """The likelier symbol: a closing bracket, but an opening one where none is open."""
    return symbol == ")" or depth == 0


def dyck_1() -> AutomatonTask:
    """Prefixes of balanced strings of one kind of brackets, of any depth."""
    return AutomatonTask(
        name="dyck-1",
        symbols=("(", ")"),
        start=0,
        moves=_moves,
        weight=_weight,
        counted=_counted,
        train_lengths=range(2, 28),
        long_lengths=(80, 100),
        probe_string="((()()))()",
    )
