"""Values that are hardly ever right, and what became of a call with one."""

from __future__ import annotations

import dis
import signal
from collections.abc import Callable, Iterator, Sequence
from traceback import walk_tb
from types import FrameType, FunctionType, TracebackType
from typing import Any

import numpy as np
import torch

from tests.arguments.calls import Stop, config
from tl_dyck.kit import modes
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.errors import DyckError

SECONDS = 20  # of work: a busy machine makes no call late
MANY = 2_000_000
#: Where what is wrong is only found out from something else, which the message names.
VAGUE = (
    *(
        "AutomatonTask",
        "as_bridge",
        "DyckTransformerConfig.from_saved",
        "attention_variation",
    ),
    *("prove_edits", "certify.word_space", "models.construct.twins", "rnn.RNNConfig.from_dict"),
    *("report.widgets.attention_seeds", "text.TextRecipe.from_dict", "text.TextConfig.from_dict"),
    *("accuracy_on", "text.SentencesExperiment.prepare"),
    "studies.Study.certificate_patterns",
    *("training.DriftRegularizer.check", "studies.TrainExperiment.prepare"),
)
#: What is asked for is kept of other studies.
MISSING = ("studies.Study.certificate_patterns",)
#: Values that can be called.
FUNCTIONS = (torch.nn.Linear, type, FunctionType)


def values() -> dict[str, Any]:
    """Made anew for each call, for some can be read only once."""
    return {
        "none": None,
        "object": object(),
        "empty": "",
        "text": "text",
        "lines": "a\n\x1b[0m\x00",
        "bytes": b"x",
        "nan": float("nan"),
        "inf": float("inf"),
        "minus": -1,
        "zero": 0,
        "half": 2.5,
        "whole": 2.0,
        "two": "2",
        "huge": 10**12,
        "googol": 10**400,
        "digits": 10**5000,  # which Python does not even print
        "range": range(10**12),
        "ranges": range(10**400),
        "long": Long(),
        "longest": Long(10**400),
        "true": True,
        "list": [],
        "twos": [2],
        "dict": {},
        "set": {0.5, 1.5},
        "letters": ["a", None],
        "tensor": torch.empty(0),
        "nans": torch.full((2, 2), float("nan")),
        "cube": torch.zeros(1, 1, 1, dtype=torch.int64),
        "far": torch.full((2, 2), 10**12),
        "meta": torch.zeros(2, 2, dtype=torch.int64, device="meta"),
        "number": torch.tensor([4.7]),
        "array": np.zeros(3),
        "generator": (one for one in ()),
        "endless": endless(),
        "class": int,
        "linear": torch.nn.Linear(2, 2),
        "config": config(),
        "complex": 1j,
        "function": lambda *_: None,
    }


class Long(Sequence[int]):
    """A sequence that says that it is long, and is dear to whoever reads it."""

    def __init__(self, length: int = 10**12) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: Any) -> Any:
        if at > MANY:
            raise Late
        return 0


def endless() -> Iterator[int]:
    """More than anybody may want to keep."""
    yield from range(MANY)
    raise Late


def outcome(call: Callable[[], Any], name: str, value: Any) -> str:
    """Taken, refused, or what is wrong with the error."""
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        call()
    except Stop:
        return "taken"
    except MemoryError:
        return "takes all memory"
    except Late:
        return f"not ended after {SECONDS} s, or took all of what has no end"
    except Exception as error:
        return told(error, name, value) or (AT_THE_GATE if _at_the_gate(error) else "refused")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "taken"


AT_THE_GATE = "refused at the gate"
GATE = checked(values).__code__


def _at_the_gate(error: Exception) -> bool:
    """Whether it was raised before the function was called."""
    ours = (frame for frame, _ in walk_tb(error.__traceback__) if _package(frame) in PACKAGES)
    codes = [frame.f_code for frame in ours]
    return codes[:1] == [GATE] and modes.call.__code__ not in codes


class Late(BaseException):
    """A call that takes for ever."""


def _late(*_: Any) -> None:
    raise Late


def told(error: Exception, name: str, value: Any) -> str | None:
    """What is wrong with an error; None if it is one line of ours that says what it is about."""
    said, trace = str(error), error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    file = trace.tb_frame.f_code.co_filename
    where = f"{file.rpartition('/tl_dyck')[2] or file}:{trace.tb_lineno}"
    what = f"{type(error).__name__}: {said.splitlines()[0] if said else ''} ({where})"
    if isinstance(value, FUNCTIONS) and not isinstance(error, DyckError):
        return None  # what a function of the user's raises is the user's
    if not (isinstance(error, (DyckError, OSError)) or _raised(error, trace)):
        return f"not ours: {what}"
    if len(said.splitlines()) != 1 and not isinstance(value, FUNCTIONS):
        return f"no line: {what}"
    if any(not letter.isprintable() for letter in said if letter != "\n"):
        return f"control: {what}"
    if not _named(said, name, value):
        return f"nameless: {what}"
    return None


def _raised(error: Exception, trace: TracebackType) -> bool:
    if not isinstance(error, (TypeError, ValueError)):
        return False
    code = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return code == dis.opmap["RAISE_VARARGS"] and _package(trace.tb_frame) in PACKAGES


PACKAGES = ("tl_dyck", "tl_dyck_hooks", "tl_dyck_text")


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _named(said: str, name: str, value: Any) -> bool:
    """Whether it says which argument, or which value, it is about."""
    words = {name, name.rstrip("s"), name.replace("_", " "), type(value).__name__}
    if any(word.lower() in said.lower() for word in words):
        return True
    if isinstance(value, int) and value >= 10**400:
        return False
    words = {" ".join(repr(value).split())[:30], str(value)[:30], str(10**12), "token"} - {""}
    words |= {"text", "empty"} if isinstance(value, str) else set()
    return any(word.lower() in said.lower() for word in words)
