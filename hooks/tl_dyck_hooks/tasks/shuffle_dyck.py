"""Shuffle-Dyck, after Bhattamishra et al. 2020 (arXiv 2009.11264): interleaved counters."""

from collections.abc import Mapping

from tl_dyck.tasks import AutomatonTask

_OPEN, _CLOSE = "([", ")]"


def _moves(counts: tuple[int, int]) -> Mapping[str, tuple[int, int]]:
    found = {}
    for kind, count in enumerate(counts):
        others = list(counts)
        for symbol, step in ((_OPEN[kind], 1), (_CLOSE[kind], -1)):
            if count + step >= 0:
                others[kind] = count + step
                found[symbol] = (others[0], others[1])
    return found


def _weight(counts: tuple[int, int], symbol: str) -> float:
    """Open with probability 1/2, else close; of the types that can, each as likely."""
    among = len(counts) if symbol in _OPEN else sum(count > 0 for count in counts)
    return (0.5 if any(counts) else 1.0) / among


def _counted(counts: tuple[int, int], symbol: str) -> bool:
    """A closing bracket where only one type is open: which one takes both counters."""
    return symbol in _CLOSE and 0 in counts


def shuffle_dyck() -> AutomatonTask:
    """Prefixes of two kinds of brackets, each balanced by itself: ([)] is one."""
    return AutomatonTask(
        name="shuffle-dyck",
        symbols=("(", ")", "[", "]"),
        start=(0, 0),
        moves=_moves,
        weight=_weight,
        counted=_counted,
        train_lengths=range(2, 28),
        long_lengths=(80, 100),
        probe_string="([)](([[))]]",
    )
