"""Files that are either whole or absent: atomic writes, JSON and safetensors with clear errors.

Never pickle.

Whatever is read comes through `read_regular`, which asks what a file is, and how large, before it
reads a byte of it.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import gzip
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tl_dyck.kit.errors import DyckError

if TYPE_CHECKING:
    import torch

_TEMPORARY = ".tl_dyck-"

# The largest files that are read, in bytes: far above what tl_dyck writes, far below what would eat
# a machine's memory.
LARGEST_JSON = 2**28  # the results of a study of ten thousand models
LARGEST_DESCRIPTION = 2**26  # of an RNN: an alphabet of a million words fits
LARGEST_TEXT = 2**30  # a corpus
LONGEST_LINE = 2**26  # of a file that is read line by line
LARGEST_YAML = 2**20  # a sweep; YAML is slow: this takes half a minute, and JSON does not
LARGEST_TENSORS = 2**32

_LONGEST_REASON = 300  # characters
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
# A socket; a loop of links; no name.
_NO_FILE = (errno.ENXIO, errno.ENODEV, errno.ELOOP, errno.ENAMETOOLONG)
# What `stat.filemode` begins with.
_KINDS = {"p": "a pipe", "c": "a device", "b": "a device", "s": "a socket"}
# To open a pipe else waits for who writes to it.
# (Windows has neither flag: 0 changes nothing)
_AT_ONCE = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY"))


class CorruptFileError(DyckError, ValueError):
    """A file we should be able to read is missing, truncated, altered, or not what it says."""


class MissingFileError(CorruptFileError, FileNotFoundError):
    """There is no file of that name."""


def one_line(error: BaseException) -> str:
    """Shorten the text of an error to a message of one line."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= _LONGEST_REASON else f"{said[:_LONGEST_REASON]}…"


@contextlib.contextmanager
def _regular(path: str | Path, most: int) -> Iterator[tuple[IO[bytes], int]]:
    """An open ordinary file and its size; errors are those of `read_regular`."""
    name = str(path)
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | _AT_ONCE)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                kind = _KINDS.get(stat.filemode(found.st_mode)[0], "something else")
                raise CorruptFileError(f"{name!r} is not an ordinary file but {kind}")
            if found.st_size > most:
                raise CorruptFileError(
                    f"{name!r} has {found.st_size:,} bytes: too large to be read (at most {most:,})"
                )
            yield file, found.st_size
    except CorruptFileError:
        raise
    except ValueError as error:
        raise CorruptFileError(f"{name!r} is no name of a file: {error}") from error
    except OSError as error:
        if error.errno in _NOT_THERE:
            folder = ": it is a folder" if error.errno == errno.EISDIR else ""
            raise MissingFileError(f"there is no file {name!r}{folder}") from error
        if error.errno in _NO_FILE:
            raise CorruptFileError(f"{name!r} is not an ordinary file: {error.strerror}") from error
        raise


def read_regular(path: str | Path, most: int = LARGEST_JSON) -> bytes:
    """Read an ordinary file whole; pipes, devices and what is too large are refused before.

    What is asked for kind and size is the open file itself, so that nobody can put another in its
    place in between.

    Args:
        path: the file; links are followed.
        most: its largest size in bytes.

    Raises:
        MissingFileError: there is none, or a folder.
        CorruptFileError: it is no ordinary file, or too large.
        OSError: it cannot be read: no permission, a broken disk.
    """
    with _regular(path, most) as (file, size):
        # one byte more than it had: a file that grew is noticed
        data = file.read(size + 1)
    if len(data) != size:
        raise CorruptFileError(
            f"{str(path)!r} changed while it was read: it has {size:,} bytes no more"
        )
    return data


def read_each_line(
    path: str | Path, most: int = LARGEST_TEXT, longest: int = LONGEST_LINE
) -> Iterator[str]:
    """Read an ordinary file of UTF-8 line by line, also one that gzip has made smaller.

    Lines end as `lines_of` has them, and a byte-order mark is no part of the first. A file has at
    most so many bytes, unpacked; a line, so many. Errors are those of `read_regular`, also for more
    than that, for what is no UTF-8, and for what cannot be unpacked.
    """
    name, size, number = str(path), 0, 0
    with _regular(path, most) as (file, _):
        # gzip's magic number, whatever the file is called
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        lines: Any = gzip.GzipFile(fileobj=file) if packed else file
        while True:
            try:
                # one byte more than may be: then it is too long, however long it is
                line = lines.readline(longest + 1)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise CorruptFileError(f"{name!r} cannot be unpacked: {one_line(error)}") from error
            if not line:
                return
            size, number = size + len(line), number + 1
            if len(line) > longest or size > most:
                what = f"line {number} of " if len(line) > longest else ""
                limit = longest if what else most
                raise CorruptFileError(f"{what}{name!r} has more than {limit:,} bytes")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise CorruptFileError(f"line {number} of {name!r} is no UTF-8: {error}") from error


def read_text(path: str | Path, most: int = LARGEST_TEXT) -> str:
    """Read an ordinary file of UTF-8, without a byte-order mark; errors are as `read_regular`'s."""
    try:
        return read_regular(path, most).removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{str(path)!r} is not UTF-8 text: {error}") from error


def lines_of(data: bytes) -> list[str | None]:
    """Lines of UTF-8, None for those that are not; a byte-order mark is no part of the first.

    Lines end with a line feed, perhaps after a carriage return, and with nothing else: text from
    the web has U+0085, U+2028 and form feeds within sentences, where `str.splitlines` would cut.
    """
    found: list[str | None] = []
    for line in data.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").split(b"\n"):
        try:
            found.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError:
            found.append(None)
    return found if data else []


def ensure_folder(folder: str | Path) -> Path:
    """Create `folder` if need be and check that files can be created in it.

    Raises:
        OSError: it cannot be created or written to; the message names the folder.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        # permissions alone do not tell: a disk may be mounted read-only
        descriptor, probe = tempfile.mkstemp(prefix=_TEMPORARY, suffix=".tmp", dir=path)
        os.close(descriptor)
        os.unlink(probe)
    except OSError as error:
        raise type(error)(
            error.errno,
            f"cannot write to the folder {str(path)!r} ({error.strerror}); choose another one",
        ) from error
    return path


def remove_leftovers(folder: str | Path, older: float = 0.0) -> None:
    """Remove the unfinished files of processes that were killed, as far as that is possible.

    Files written to in the last `older` seconds stay: 0 is for folders in which one process at a
    time writes; otherwise longer than it takes to write a file.
    """
    for path in Path(folder).glob(f"{_TEMPORARY}*.tmp"):
        with contextlib.suppress(OSError):  # untidy, but no reason to stop
            if not older or time.time() - path.lstat().st_mtime > older:
                path.unlink()


def write_bytes(path: str | Path, data: bytes, *, flush: bool = True) -> None:
    """Write `data` so that `path` holds its old content or all of the new, whatever happens.

    The bytes go to a temporary name in the same folder, are flushed to disk, and are renamed onto
    `path`. Not to `flush` saves milliseconds; what happens half-way may then be anything that
    happens to a process, but not to the machine.

    Raises:
        OSError: no space, no permission, …; it names the file, and `path` is as it was.
    """
    with _new_file(Path(path), flush) as file:
        file.write(data)


def write_output(path: str | Path, data: bytes) -> None:
    """Write what a user wants at a place of their own: a file, a pipe or a terminal.

    A file, or what a link leads to, is written as by `write_bytes`, in a folder that is made if
    need be. A pipe or a device is given the data, and stays what it is. (`write_bytes` puts a file
    in its place: right for files of ours, where what others planted is replaced, not followed.)

    Raises:
        OSError: it is a folder, a socket or a disk, or cannot be written.
    """
    target = Path(path)
    kind = target.stat().st_mode if target.exists() else stat.S_IFREG
    if stat.S_ISREG(kind):
        target = Path(os.path.realpath(target))
        ensure_folder(target.parent)
        write_bytes(target, data)
    elif stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        with open(target, "wb") as file:
            file.write(data)
    else:
        what = "a folder" if stat.S_ISDIR(kind) else "neither a file nor a pipe"
        raise IsADirectoryError(f"{str(target)!r} is {what}; name a file")


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file of any size so that `target` holds either its old content or all of the new.

    A `source` that is a link is refused, as an OSError.
    """
    flags = _AT_ONCE | getattr(os, "O_NOFOLLOW", 0)
    with (
        _new_file(Path(target), True) as file,
        open(source, "rb", opener=lambda path, given: os.open(path, given | flags)) as old,
    ):
        # a mebibyte at a time, so that memory does not depend on the size
        shutil.copyfileobj(old, file, 2**20)


@contextlib.contextmanager
def _new_file(path: Path, flush: bool) -> Iterator[IO[bytes]]:
    """A file under a temporary name, which becomes `path` when all has been written."""
    descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if flush:
                file.flush()
                # before the rename: a name must not lead to bytes that are not on the disk yet
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private
        os.replace(temporary, path)
    except BaseException as error:  # Ctrl-C too: leave no half file behind
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.strerror and error.filename is None:
            error.filename = str(path)  # a full disk does not say which
        raise


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; see `as_json`."""
    write_bytes(path, as_json(value))


def as_json(value: Any) -> bytes:
    """A file of indented JSON; NaN and infinities are refused, for they are not JSON."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def parse_json(data: bytes | str) -> Any:
    """What a text of JSON says.

    Raises:
        ValueError: it is none, or a name stands twice in an object: then it is not known what is
            meant.
    """
    if isinstance(data, bytes):
        data = data.removeprefix(codecs.BOM_UTF8)  # which editors on Windows write
    return json.loads(data, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r:.80} stands twice in an object")
    return found


def read_json(path: str | Path, most: int = LARGEST_JSON) -> Any:
    """Read a JSON file of at most so many bytes; errors are those of `read_regular`."""
    data = read_regular(path, most)
    try:
        return parse_json(data)
    except (ValueError, RecursionError) as error:  # bad UTF-8, bad JSON, absurd nesting
        raise CorruptFileError(f"{str(path)!r} is not valid JSON: {one_line(error)}") from error


def write_tensors(path: str | Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write tensors as safetensors, atomically; returns the file's SHA-256, in hexadecimal."""
    data = _dumped(tensors)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """The digest that `write_tensors` would return."""
    return hashlib.sha256(_dumped(tensors)).hexdigest()


def _dumped(tensors: Mapping[str, torch.Tensor]) -> bytes:
    import torch
    from safetensors.torch import save

    # copies, since safetensors refuses tensors that share memory
    data: bytes = save(
        {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
    )
    return data


def read_tensors(
    path: str | Path, sha256: str | None = None, most: int = LARGEST_TENSORS
) -> dict[str, torch.Tensor]:
    """Read a safetensors file, onto the CPU; errors are those of `read_regular`.

    It must have the digest `sha256`, if one is given.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = read_regular(path, most)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and digest != sha256:
        raise CorruptFileError(
            f"{str(path)!r} is truncated or was altered: its SHA-256 is {digest[:12]}…, "
            f"not {sha256[:12]}…"
        )
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptFileError(
            f"{str(path)!r} is not a safetensors file: {one_line(error)}"
        ) from error


def sha256(value: Any) -> str:
    """SHA-256, in hex, of the canonical JSON of `value`: the identity of a configuration."""
    # sorted and without spaces: the same values give the same text
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
