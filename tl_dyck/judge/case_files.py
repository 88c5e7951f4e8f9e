"""A case as bytes, and back: weights, strings and answers, the same bit by bit.

Knows: that such bytes may come from anybody: JSON and safetensors, never pickle, and sizes are
compared before anything is built.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import Tensor

from tl_dyck.judge.asked import partners
from tl_dyck.judge.cases import small_task
from tl_dyck.judge.protocol import ABOUT_HEADS, KINDS, Case, Fact, JudgeError, Question
from tl_dyck.judge.small_tasks import BRACKETS, TASKS, small_automaton
from tl_dyck.kit.files import CorruptFileError, one_line, parse_json
from tl_dyck.models.storage import config_of, model_of
from tl_dyck.models.transformer import DyckTransformer
from tl_dyck.tasks import AutomatonTask

#: Of a case, unpacked, in bytes: the largest, two networks of Theorem 3, has a fifth of that.
LARGEST_CASE = 2**26
_LARGEST_WORDS = 2**22  # of its JSON; a case has about 20 kB
_MEMORY = 2**27  # that xz may take: 9 MB for what `packed` makes
_NUMBER = 8  # bytes of a float64
_DEEPEST = 3  # how far a target is nested
_MODELS = ("model", "other")


def dump_case(case: Case, facts: Iterable[Fact]) -> bytes:
    """A case and what is known of it; `read_case` reads it.

    Raises:
        JudgeError: it would come back as another one.
    """
    tensors = {"tokens": case.tokens}
    if case.directions is not None:
        tensors["directions"] = case.directions
    models = {}
    for part in _MODELS:
        model = getattr(case, part)
        if model is None:
            continue
        if not isinstance(model, DyckTransformer):
            raise JudgeError(f"a {type(model).__name__} is kept in no file of cases")
        weights = {f"{part}.{name}": weight for name, weight in model.named_parameters()}
        frozen = [name for name, weight in weights.items() if not weight.requires_grad]
        models[part] = {"config": config_of(model), "order": [*weights], "frozen": frozen}
        tensors |= weights
    said: dict[str, Any] = {"models": models, "facts": [_said(fact) for fact in facts]}
    if isinstance(case.task, AutomatonTask):
        said["task"] = case.task.name
    words = json.dumps(said, separators=(",", ":"), allow_nan=False).encode()
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    data = len(words).to_bytes(_NUMBER, "little") + words + _planes(dump_safetensors(copies))
    again, _ = read_case(data, "this")
    if (again.task, again.length) != (case.task, case.length):
        raise JudgeError(f"a case of {case.task.name!r} is kept in no file: its task is another")
    return data


def read_case(data: bytes, source: str) -> tuple[Case, list[Fact]]:
    """A case and what is known of it, from `dump_case`.

    Args:
        data: the bytes.
        source: of these, for messages.

    Raises:
        CorruptFileError: they are none.
    """
    try:
        return _case(data, source)
    except CorruptFileError:
        raise
    except KeyError as error:
        raise CorruptFileError(f"{source} lacks {error}") from error
    except (
        *(AttributeError, TypeError, ValueError, RecursionError, OverflowError),
        *(SafetensorError, IndexError, RuntimeError),
    ) as error:
        raise CorruptFileError(f"{source} holds no case: {one_line(error)}") from error


def packed(data: bytes) -> bytes:
    """The same in fewer bytes."""
    return lzma.compress(data)


def unpacked(data: bytes, size: int, source: str) -> bytes:
    """What `packed` was given: so many bytes, and no more is ever unpacked.

    Raises:
        CorruptFileError: it is something else.
    """
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        found = reader.decompress(data, size + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise CorruptFileError(f"{source} cannot be unpacked: {one_line(error)}") from error
    if len(found) != size or not reader.eof or reader.unused_data:
        raise CorruptFileError(f"{source} does not unpack to {size:,} bytes")
    return found


def _case(data: bytes, source: str) -> tuple[Case, list[Fact]]:
    length = int.from_bytes(data[:_NUMBER], "little")
    if length > min(_LARGEST_WORDS, len(data)):
        raise ValueError(f"{length:,} bytes of JSON")
    start = _NUMBER + length
    said = parse_json(data[_NUMBER:start])
    tensors = load_safetensors(_together(data[start:]))
    models = {
        part: _model(said["models"][part], part, tensors, source)
        for part in _MODELS
        if part in said["models"]
    }
    tokens, directions = tensors["tokens"], tensors.get("directions")
    model = models["model"]
    cfg, language = model.cfg, model.cfg.language
    if tokens.dtype != torch.int64 or tokens.ndim != 2 or not 2 <= tokens.shape[1] <= cfg.n_ctx:
        raise ValueError(f"strings are {tokens.dtype} {list(tokens.shape)}")
    language.check_tokens(tokens)
    if directions is not None and (directions.ndim != 2 or directions.shape[1] != cfg.d_head):
        raise ValueError(f"directions are {list(directions.shape)}, for heads of {cfg.d_head}")
    length = tokens.shape[1] - 1  # in symbols, without BOS
    task = _task(said.get("task"), language, length)
    if isinstance(task, AutomatonTask):
        partners(task, tokens)  # refuses what is none of its strings
    facts = [_fact(words, cfg) for words in said["facts"]]
    case = Case(model, task, length, tokens, other=models.get("other"), directions=directions)
    return case, facts


def _task(name: str | None, language: Any, length: int) -> Any:
    """Of brackets the small one of a length; else that of a name."""
    if name is None:
        return small_task(language.n_types, language.max_depth, length)
    if name not in TASKS or name == BRACKETS:
        raise ValueError(f"a task is {name!r:.40}")
    task = small_automaton(name)
    if task.language != language or task.train_lengths != (length,):
        raise ValueError(f"its strings are none of {name}")
    return task


def _model(
    said: Mapping[str, Any], part: str, tensors: Mapping[str, Tensor], source: str
) -> DyckTransformer:
    """One of its models, whose parameters are in the order in which they were."""
    before = f"{part}."
    weights = {
        name.removeprefix(before): tensor
        for name, tensor in tensors.items()
        if name.startswith(before)
    }
    model: DyckTransformer = model_of(said["config"], weights, source)
    order = [name.removeprefix(before) for name in said["order"]]
    if {*order} != {*weights} or len(order) != len(weights):
        raise ValueError(f"the order of the weights of its {part} names others")
    for name in order:
        place, _, last = name.rpartition(".")
        parameters = model.get_submodule(place)._parameters
        parameters[last] = weight = parameters.pop(last)
        assert weight is not None  # it was filled
        weight.requires_grad_(before + name not in said["frozen"])
    return model.eval()


# --- answers --------------------------------------------------------------------------------------


def _said(fact: Fact) -> list[Any]:
    question = fact.question
    return [question.kind, question.target, fact.answer, fact.proof, fact.effect, fact.sizes]


def _fact(words: Any, cfg: Any) -> Fact:
    kind, target, answer, proof, effect, sizes = words
    target = _target(target)
    if kind not in KINDS or not isinstance(target, tuple):
        raise ValueError(f"a question of kind {kind!r:.40} about {target!r:.40}")
    heads = (cfg.n_layers, cfg.n_heads)
    if kind in ABOUT_HEADS and not all(
        isinstance(at, int) and at < most for at, most in zip(target, heads, strict=True)
    ):
        raise ValueError(f"there is no head {target!r:.40}")
    numbers = [*sizes.values()] + [effect] * (effect is not None)
    if not isinstance(answer, bool) or not isinstance(proof, str):
        raise TypeError(f"an answer is {answer!r:.40}, for {proof!r:.40}")
    if not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
        raise TypeError(f"the sizes of an effect are {numbers!r:.80}")
    return Fact(Question(kind, target), answer, proof, effect, sizes)


def _target(part: Any, depth: int = 0) -> Any:
    """Lists are tuples again, of numbers from 0 on, and None."""
    if isinstance(part, list) and depth < _DEEPEST:
        return tuple(_target(each, depth + 1) for each in part)
    if part is None or (isinstance(part, int) and not isinstance(part, bool) and part >= 0):
        return part
    raise ValueError(f"a question is about {part!r:.40}")


# --- bytes ----------------------------------------------------------------------------------------


def _planes(data: bytes) -> bytes:
    """First bytes of all numbers, then second ones, …: exponents are alike, and become few."""
    whole = data + bytes(-len(data) % _NUMBER)
    found: bytes = np.frombuffer(whole, np.uint8).reshape(-1, _NUMBER).T.tobytes()
    return found


def _together(data: bytes) -> bytes:
    """What `_planes` was given; the zeros at its end are no part of a safetensors file."""
    if len(data) % _NUMBER:
        raise ValueError("its numbers are not whole")
    whole: bytes = np.frombuffer(data, np.uint8).reshape(_NUMBER, -1).T.tobytes()
    header = int.from_bytes(whole[:_NUMBER], "little")
    ends = [
        each["data_offsets"][1]
        for name, each in parse_json(whole[_NUMBER : _NUMBER + header]).items()
        if name != "__metadata__"
    ]
    return whole[: _NUMBER + header + max(ends, default=0)]
