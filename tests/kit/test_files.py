"""Files are whole or absent, whatever happens; what cannot be read is named."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import tempfile
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tl_dyck.kit.files import (
    CorruptFileError,
    ensure_folder,
    read_json,
    read_regular,
    read_tensors,
    read_text,
    remove_leftovers,
    sha256,
    write_bytes,
    write_json,
    write_tensors,
)
from tl_dyck.kit.records import read_table

OLD, NEW = b"old content", b"new content, and more of it"
SHARED_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "file.bin"
    write_bytes(path, OLD)
    return path


@SHARED_FOLDER
@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_bytes_round_trip(tmp_path, first, second):
    for data in (first, second):
        write_bytes(str(tmp_path / "x"), data)
        assert (tmp_path / "x").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_says_which_file(file, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=f"No space left on device: '{file}'") as caught:
        write_bytes(file, NEW)
    assert caught.value.errno == errno.ENOSPC


def test_only_ordinary_files_of_moderate_size_are_read(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(file)
    assert read_regular(file, 5) == read_regular(tmp_path / "link") == b"12345"
    for path, said in (
        ("/dev/null", "not an ordinary file but a device"),
        (tmp_path, "it is a folder"),
        (tmp_path / "nowhere", "there is no file"),
        (file / "deeper", "there is no file"),
        ("a\0b", "no name of a file"),
    ):
        with pytest.raises(CorruptFileError, match=said):
            read_regular(path)
    with pytest.raises(
        CorruptFileError, match=r"file' has 5 bytes: too large to be read \(at most 4\)"
    ):
        read_regular(file, 4)


def test_what_is_no_text_and_no_table(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(CorruptFileError, match=r"file' is not UTF-8"):
        read_text(tmp_path / "file")
    with pytest.raises(CorruptFileError, match=r"file' is not a Parquet file"):
        read_table(tmp_path / "file")


def test_a_table_that_compression_has_made_small_is_refused(tmp_path, monkeypatch):
    pd.DataFrame({"x": [0] * 100_000}).to_parquet(tmp_path / "x.parquet")
    assert len(read_table(tmp_path / "x.parquet")) == 100_000
    monkeypatch.setattr("tl_dyck.kit.records.MOST_CELLS", 99_999)
    with pytest.raises(CorruptFileError, match="100,000 values are too many"):
        read_table(tmp_path / "x.parquet")


@pytest.mark.parametrize("where", ["mkstemp", "fsync", "chmod", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), Killed()]
)
def test_an_error_anywhere_leaves_the_old_content_and_no_rubbish(file, monkeypatch, where, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(tempfile if where == "mkstemp" else os, where, fail)
    with pytest.raises(type(error)):
        write_bytes(file, NEW)
    assert file.read_bytes() == OLD
    assert list(file.parent.iterdir()) == [file]


def test_the_new_content_is_on_disk_before_it_takes_the_name(file, monkeypatch):
    """At fsync the temporary file holds everything; the rename follows, in the same folder."""
    calls = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        (temporary,) = set(file.parent.iterdir()) - {file}
        calls.append(("fsync", temporary.read_bytes(), file.read_bytes()))
        real_fsync(descriptor)

    def replace(source, target):
        calls.append(("replace", Path(source).parent == file.parent, Path(target) == file))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_bytes(file, NEW)
    assert calls == [("fsync", NEW, OLD), ("replace", True, True)]
    assert file.read_bytes() == NEW


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_others_may_read(file):
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_leftovers(tmp_path, monkeypatch):
    def killed(*args):
        raise Killed

    for name in ("fsync", "unlink"):  # neither finished nor tidied up
        monkeypatch.setattr(os, name, killed)
    with pytest.raises(Killed):
        write_bytes(tmp_path / "x", NEW)
    monkeypatch.undo()
    (tmp_path / "mine.tmp").write_text("x")
    (tmp_path / ".mine.tmp").write_text("x")
    assert len(list(tmp_path.iterdir())) == 3
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.tmp", "mine.tmp"]


# --- folders --------------------------------------------------------------------------------------


def test_folders(tmp_path):
    path = ensure_folder(tmp_path / "a" / "b")
    assert path == ensure_folder(str(path))
    assert path.is_dir()
    assert list(path.iterdir()) == []


def test_unwritable_folders(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "a", Path("/proc/nowhere"), "/proc"):
        with pytest.raises(
            OSError, match=r"cannot write to the folder '.*' \(.*\); choose another one"
        ) as caught:
            ensure_folder(path)
        assert caught.value.errno is not None
        assert type(caught.value) is not OSError or caught.value.errno not in (
            errno.EACCES,
            errno.ENOTDIR,
        )


# --- JSON -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@SHARED_FOLDER
@given(value=JSON)
def test_json_round_trip(tmp_path, value):
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, [1, {"a": -math.inf}]])
def test_what_is_not_json_is_refused_and_changes_nothing(tmp_path, value):
    write_json(tmp_path / "x.json", 1)
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", value)
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"tensor": torch.zeros(1)})
    assert read_json(tmp_path / "x.json") == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{'a': 1}", b"\xff\xfe", b"[" * 200_000, b"1 2", b'{"a": 1,}']
)
def test_broken_json(tmp_path, data):
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"'.*x.json' is not valid JSON: "):
        read_json(tmp_path / "x.json")


# --- tensors --------------------------------------------------------------------------------------


def test_tensors_round_trip(tmp_path):
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "float": torch.randn(3, 4, generator=generator),
        "double": torch.randn(2, generator=generator, dtype=torch.float64),
        "half": torch.randn(2, 2, generator=generator).to(torch.bfloat16),
        "int": torch.arange(5),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "view": torch.arange(12.0).view(3, 4).T[1:],
        "grad": torch.ones(2, requires_grad=True),
        "odd": torch.tensor([math.nan, math.inf, -0.0]),
    }
    digest = write_tensors(tmp_path / "x", tensors)
    assert digest == hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()
    found = read_tensors(tmp_path / "x", digest)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].nan_to_num(5), tensor.detach().nan_to_num(5))
    assert write_tensors(tmp_path / "y", tensors) == digest  # the same tensors give the same file
    assert read_tensors(tmp_path / "x").keys() == found.keys()


def test_weights_that_share_memory(tmp_path):
    weight = torch.arange(4.0)
    write_tensors(tmp_path / "x", {"a": weight, "b": weight})
    found = read_tensors(tmp_path / "x")
    assert torch.equal(found["a"], weight)
    assert torch.equal(found["b"], weight)


@SHARED_FOLDER
@given(position=st.integers(0, 10**6), data=st.binary(max_size=60))
def test_without_a_digest_what_is_no_safetensors_file_is_still_an_error(tmp_path, position, data):
    write_tensors(tmp_path / "x", {"a": torch.arange(6.0)})
    whole = (tmp_path / "x").read_bytes()
    for broken in (whole[: position % len(whole)], data):
        (tmp_path / "x").write_bytes(broken)
        with pytest.raises(CorruptFileError, match="is not a safetensors file"):
            read_tensors(tmp_path / "x")


# --- digests of values ----------------------------------------------------------------------------


@given(value=st.dictionaries(st.text(), JSON, min_size=2, max_size=4))
def test_the_digest_of_a_value_is_that_of_its_content(value):
    other_order = dict(reversed(value.items()))
    assert sha256(other_order) == sha256(value)
    assert sha256(json.loads(json.dumps(value))) == sha256(value)
    assert sha256({**value, "extra key": 1}) != sha256(value)


def test_a_digest_for_ever():
    text = '{"a":[1,2.5,null],"b":"\\u00e9"}'
    assert sha256({"b": "é", "a": [1, 2.5, None]}) == hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(ValueError, match="JSON"):
        sha256(math.nan)
