"""The bars of commands that read a Kafka's directory: on standard error, and only if that is a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraftlog.cli.main import main
from kraftlog.cli.shared import progress
from kraftlog.offline.kafka.directory import open_directory
from tests.kraftlog.command_line import Run, run
from tests.kraftlog.kafka.conftest import kafka_data
from tests.kraftlog.offline.kafka.conftest import controller, other_controller

__all__ = ["controller", "kafka_data", "other_controller", "run"]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long enough for a bar would take too long for a test. FORCE_COLOR makes rich see terminals."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


class AtTerminal:
    """Runs commands whose standard error is a terminal."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[str, str]:
        """What it printed, and what it drew, without what moves the cursor."""
        ours, theirs = pty.openpty()
        with ThreadPoolExecutor() as executor:
            drawn = executor.submit(lambda: b"".join(iter(lambda: _read(ours), b"")))
            with pytest.MonkeyPatch.context() as patch, os.fdopen(theirs, "w") as terminal:
                patch.setattr(sys, "stderr", terminal)
                main([str(argument) for argument in arguments])
            shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.result().decode())
        os.close(ours)
        return self._capsys.readouterr().out, shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's error when the other end is closed
        return b""


@pytest.fixture
def at_terminal(capsys: pytest.CaptureFixture[str]) -> Iterator[AtTerminal]:
    yield AtTerminal(capsys)


def bar(drawn: str, what: str) -> bool:
    """Whether the bar was drawn to its end."""
    return re.search(rf"{what} ━+ 100%", drawn) is not None


def test_dump_has_a_bar_beside_the_records(controller: Path, at_terminal: AtTerminal) -> None:
    printed, drawn = at_terminal("kafka", "dump", controller)
    assert [json.loads(line)["offset"] for line in printed.splitlines()] == list(range(780))
    assert bar(drawn, "reading the log")
    assert "note: offsets 676 to 779 are after the newest snapshot" in drawn


def test_dump_of_one_file_has_a_bar(controller: Path, at_terminal: AtTerminal) -> None:
    path = open_directory(controller).checkpoints[0].path
    printed, drawn = at_terminal("kafka", "dump", path)
    assert len(printed.splitlines()) == 132
    assert bar(drawn, "reading the log")


def test_dump_to_a_terminal_has_none(
    controller: Path, at_terminal: AtTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    printed, drawn = at_terminal("kafka", "dump", controller, "--offsets", ":676")
    assert (len(printed.splitlines()), drawn) == (676, "")


def test_diff_has_one_for_each_load_and_one_for_the_comparison(
    controller: Path, other_controller: Path, at_terminal: AtTerminal
) -> None:
    printed, drawn = at_terminal("kafka", "diff", controller, other_controller)
    assert printed.startswith("No differences: ")
    assert bar(drawn, "loading") and bar(drawn, "comparing")


def test_both_exports_have_one_for_what_they_read(
    controller: Path, tmp_path: Path, at_terminal: AtTerminal, run: Run
) -> None:
    exported, taken, back = (tmp_path / name for name in ("exported", "taken", "back"))
    taken.mkdir()
    back.mkdir()
    _, drawn = at_terminal("export", "--kafka", controller, "--to", exported)
    assert bar(drawn, "reading the log")
    _, drawn = at_terminal("kafka", "import", controller, "--to", taken)
    assert bar(drawn, "loading") and bar(drawn, "writing")
    _, drawn = at_terminal("kafka", "export", "--snapshot", next(taken.iterdir()), "--to", back)
    assert re.search(r"loading ━+", drawn) and bar(drawn, "writing")


@pytest.mark.parametrize(
    "command",
    [("kafka", "dump"), ("kafka", "describe"), ("kafka", "sql"), ("kafka", "diff"), ("export", "--kafka")],
)
def test_nothing_is_drawn_where_standard_error_is_no_terminal(
    controller: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str]
) -> None:
    """Not even if rich is told to colour what it writes."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    more = {
        ("kafka", "sql"): ("SELECT 1", "--no-cache"),
        ("kafka", "diff"): (controller,),
        ("export", "--kafka"): ("--to", tmp_path / "exported"),
    }
    errors = run(*command, controller, *more.get(command, ())).errors
    assert "━" not in errors and "\x1b" not in errors
