"""The counter language of all strings aⁿbⁿcⁿ, which no stack can accept."""

from collections.abc import Mapping

from tl_dyck.tasks import AutomatonTask

_State = tuple[int, int, int]


def _moves(read: _State) -> Mapping[str, _State]:
    """What may follow so many a, b and c: once there is a b, the rest is known."""
    a, b, c = read
    if b == 0:
        return {"a": (a + 1, 0, 0), "b": (a, 1, 0)} if a else {"a": (1, 0, 0)}
    if b < a:
        return {"b": (a, b + 1, 0)}
    return {"c": (a, b, c + 1)} if c < a else {}


def _ends(read: _State) -> bool:
    return read[0] == read[2]


def _counted(read: _State, symbol: str) -> bool:
    return read[1] > 0


def anbncn() -> AutomatonTask:
    """Strings aⁿbⁿcⁿ; what counts is every symbol after the first b."""
    return AutomatonTask(
        name="anbncn",
        symbols=("a", "b", "c"),
        start=(0, 0, 0),
        moves=_moves,
        ends=_ends,
        counted=_counted,
        train_lengths=range(3, 31, 3),
        long_lengths=(60, 90),
        probe_string="aaaabbbbcccc",
    )
