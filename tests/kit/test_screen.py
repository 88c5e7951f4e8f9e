"""What is printed is seen, not obeyed."""

from __future__ import annotations

import io
import time
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from tests.patience import PATIENCE
from tl_dyck.cli.answers import Rows, Saved, text_table
from tl_dyck.kit import screen
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.screen import busy, console, counted, progress_bar, share_bar, visible
from tl_dyck.runs.spec import SweepError

#: As they are; tests/conftest.py sets them so high that no other test sees such a line.
SECONDS = screen._FIRST_AFTER, screen._LINE_EVERY


@pytest.mark.parametrize("jupyter", [True, False])
def test_a_notebook_shows_the_last_state_of_a_bar(jupyter, monkeypatch):
    bar, shown = progress_bar(True), []
    monkeypatch.setattr(bar.console, "is_jupyter", jupyter)
    monkeypatch.setattr(bar.live, "refresh", lambda: shown.append(bar.tasks[-1].completed))
    bar.live.auto_refresh = False  # no thread that would show it by chance
    bar.add_task("training", total=4, note="")
    with bar:
        bar.update(bar.tasks[-1].id, completed=4)
    assert shown[-1] == 4


@pytest.mark.parametrize(("options", "seen"), [({}, True), ({"enabled": False}, False)])
def test_a_bar_is_told_the_share_that_is_done(options, seen, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with share_bar("deciding", **options) as done:
        done(0.5)
    said = capsys.readouterr().out
    assert ("deciding" in said) is seen
    assert said.count("━") == (20 if seen else 0)  # of 40; rich leaves the rest blank


def test_a_log_gets_a_line_a_minute(capsys, monkeypatch):
    """One after two seconds, then one a minute, however often it is asked; then how it ended."""
    now = [7.0]
    for terminal, lines in ((False, range(2, 331, 60)), (True, ())):
        monkeypatch.setattr(screen, "_FIRST_AFTER", SECONDS[0])
        monkeypatch.setattr(screen, "_LINE_EVERY", SECONDS[1])
        log = Console(
            file=io.StringIO(),
            force_terminal=terminal,
            color_system=None,
            get_time=lambda: now[0],
        )
        streams = {False: log, True: console(stderr=True)}
        monkeypatch.setattr(screen, "console", lambda *, stderr=False, of=streams: of[stderr])
        bar = progress_bar(True)
        bar.live.auto_refresh = False  # no thread that would ask between a second and its step
        with bar:
            task = bar.add_task("gpt seed 0", total=660, note="")
            for done in range(1, 331):
                now[0] += 1
                bar.update(task, completed=done, note=f"loss {done}", refresh=True)
        said = [f"gpt seed 0 {n * 100 // 660} % {n}/660 loss {n}" for n in lines]
        assert capsys.readouterr().err.splitlines() == said
        assert "330/660 loss 330" in log.file.getvalue()
        monkeypatch.undo()


def test_a_table_that_is_too_wide_is_several_and_loses_nothing(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    heads = ["method", *(f"column-{n}" for n in range(12))]
    row = {head: f"{place}.{place:03}" for place, head in enumerate(heads)}
    Rows("", [row], {head: f"{{{head}}}" for head in heads}).show()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = dict(
        pair
        for head, line in zip(lines[::2], lines[1::2], strict=True)
        for pair in zip(head, line, strict=True)
    )
    assert shown == row
    assert len(lines) > 2
    assert {head[0] for head in lines[::2]} == {"method"}


def test_a_log_hears_of_work_that_tells_nothing(capsys, monkeypatch):
    monkeypatch.setattr(screen, "_LINE_EVERY", 0.0)
    heard, ends = "", time.monotonic() + PATIENCE
    with busy("scores"):
        while "scores 0:00:0" not in heard and time.monotonic() < ends:
            time.sleep(0.01)
            heard += capsys.readouterr().err
    assert "scores 0:00:0" in heard


def test_what_is_counted_comes_through_and_so_does_what_it_raises(capsys):
    def some():
        yield from "ab"
        raise KeyboardInterrupt

    for enabled in (True, False):
        seen = []
        with pytest.raises(KeyboardInterrupt):
            seen.extend(counted(some(), "certifying", 3, enabled=enabled))
        assert seen == ["a", "b"]
        assert ("2/3" in capsys.readouterr().out) is enabled


def test_every_character_that_acts_is_shown_and_no_other():
    directions = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    acting, others = [], []
    for character in map(chr, range(0x110000)):
        acts = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        acts |= unicodedata.bidirectional(character) in directions
        if character != "\n" and acts:
            acting.append(character)
        elif character not in "\u061c\u200e\u200f\ufeff":
            others.append(character)
    for character in acting:
        assert visible(character).isascii()
        assert visible(character) == character.encode("unicode_escape").decode()
    assert visible("".join(others)) == "".join(others)


@pytest.mark.parametrize(
    "text",
    ["loss[train]", "[/]", "[bold]x", ":smile:", "é ‹→›", "a\x1b[2Jb", "\x9b2J", "\u202egnp"],
)
def test_text_comes_out_as_it_is_or_as_escapes(capsys, text):
    for shown in (text, Text(text, style="red"), text_table([text], [[text], [text]])):
        console().print(shown)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines] == [visible(text)] * 5


def test_what_is_named_makes_no_line_of_its_own(capsys):
    forged = "a\ndyck.proof: proved\x1b[31m\u202e"
    console().print(text_table(["name"], [[forged]]))
    Saved("Model", Path(forged)).show()
    said = capsys.readouterr().out
    assert not any(line.startswith("dyck.proof") for line in said.splitlines())
    assert visible(said) == said


def test_a_message_obeys_nothing():
    for kind in (DyckError, CorruptFileError, SweepError):
        assert str(kind("a\x1b[2J\u202eb")) == "a\\x1b[2J\\u202eb"
