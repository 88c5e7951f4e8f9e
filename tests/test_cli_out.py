"""``--out``: looked at before anything is computed; a pipe or a device stays what it is."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.test_options import CALLS, OPTIONS
from tests.test_cli import call
from tl_dyck.cli import main
from tl_dyck.cli.answers import Command
from tl_dyck.cli.options import CannotWriteError, writable_file, writable_folder
from tl_dyck.kit.files import write_output

OUTS = [name for name in OPTIONS if name.rpartition(" ")[2] in ("--out", "out", "into")]


@pytest.mark.parametrize("name", OUTS)
def test_where_nothing_can_be_written_is_said_before_the_command_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    begun: list[Any] = []
    monkeypatch.setattr(Command, "invoke", lambda self, ctx: begun.append(ctx))
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    (path, option), wrong = OPTIONS[name], "file/in/it"
    arguments, small = CALLS[path]
    given = [{**arguments, option.name: wrong}[key] for key in arguments]
    words = ["--out", wrong] if option.param_type_name == "option" else []
    done = call(*path.split(), *given, *small.split(), *words)
    assert done.exit_code == 2
    assert "is no folder" in done.stderr
    assert not begun
    assert os.listdir() == ["file"]


def test_a_device_and_a_pipe_are_written_to_and_stay(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(writable_file(pipe), b"said")
    assert os.read(reader, 9) == b"said"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    try:
        os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        write_output(writable_file(tmp_path / "null"), b"said")
    except PermissionError:
        pytest.skip("only root makes devices, and not everywhere")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)


def test_what_a_link_leads_to_is_written_and_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "new" / "file")
    write_output(writable_file(tmp_path / "link"), b"said")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new" / "file").read_bytes() == b"said"
    with pytest.raises(CannotWriteError, match="is a folder"):
        writable_file(tmp_path)
    with pytest.raises(CannotWriteError, match="is no folder"):
        writable_folder(tmp_path / "link")


@pytest.mark.parametrize("words", [["tasks"], ["tasks", "--json"]])
def test_an_encoding_without_dashes_is_enough(words: list[str], monkeypatch: pytest.MonkeyPatch):
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr(sys, "argv", ["tl-dyck", *words])
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    with pytest.raises(SystemExit) as end:
        main()
    out.flush()
    error.flush()
    said = out.buffer.getvalue()  # type: ignore[attr-defined]
    assert (end.value.code, error.buffer.getvalue()) == (0, b"")  # type: ignore[attr-defined]
    assert b"dyck-2-4" in said
