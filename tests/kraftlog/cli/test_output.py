"""What commands print: user data as it is, in tables that cut nothing, and JSON that is JSON."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from kraftlog.cli.shared.options import Output
from kraftlog.cli.shared.output import print_fields, print_json_line, print_renderable, print_rows, visible
from kraftlog.cli.testing import bench
from kraftlog.demo.demo import Demo
from tests.kraftlog.command_line import Run
from tests.kraftlog.node_directories import make_node_directory

BRACKETED = ("[/x]", "[fd00::5]", "User:[team]", "[bold]", ":warning:", "\\[x]")


class Terminal(io.StringIO):
    """A terminal, as far as rich asks it."""

    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output, from now on: a terminal of 80 columns without colours."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    return terminal


@pytest.mark.parametrize("text", BRACKETED)
def test_a_table_shows_brackets_and_colons_as_they_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows((text, "b"), [{text: text, "b": [text, 1]}], Output.TABLE)
    header, _, row = capsys.readouterr().out.splitlines()
    assert header == f"{text:<{len(text)}}   b"
    assert row == f"{text}   {text}, 1"


def test_columns_are_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("a", "b"), [{"a": "世界", "b": 1}, {"a": None, "b": {"k": 2}}], Output.TABLE)
    assert capsys.readouterr().out.splitlines() == ["a      b", "──────────", "世界   1", "       k=2"]


def test_what_a_terminal_would_obey_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert visible("a\x1b[31m\r\n\t\x9b\u2028\ud800é\\") == r"a\x1b[31m\r\n\t\x9b\u2028\ud800é" + "\\"
    print_rows(("a\x1b",), [{"a\x1b": "\x1b]0;title\x07"}], Output.TABLE)
    print_fields({"Directory": "/tmp/\x1b[2J"}, Output.TABLE)
    assert "\x1b" not in capsys.readouterr().out


def test_an_error_shows_control_characters_escaped(run: Run) -> None:
    said = run("elect", "--type", "preferred", "--topic", "\x1b[2J", "--partition", 0, "--bootstrap-server", "\x1b")
    assert said.code == 2
    assert r"\x1b" in said.errors
    assert "\x1b" not in said.errors


@pytest.mark.parametrize("length", [40, 200, 20_000])
def test_what_is_too_wide_for_a_terminal_stands_upright_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    terminal = a_terminal(monkeypatch)
    print_rows(("Id", "Text"), [{"Id": "i" * length, "Text": "t" * length}, {"Id": 1, "Text": None}], Output.TABLE)
    assert terminal.getvalue().splitlines() == [
        f"─[ 1 ]{'─' * 74}",
        f"Id    {'i' * length}",
        f"Text  {'t' * length}",
        f"─[ 2 ]{'─' * 74}",
        "Id    1",
        "Text",
    ]


@pytest.mark.parametrize(("length", "gap"), [(37, 3), (38, 3), (39, 1)])
def test_a_table_that_just_fits_a_terminal_is_drawn_together_first(
    monkeypatch: pytest.MonkeyPatch, length: int, gap: int
) -> None:
    terminal = a_terminal(monkeypatch)
    print_rows(("a", "b"), [{"a": "世" + "x" * (length - 2), "b": "y" * (length + 1)}], Output.TABLE)
    _, rule, row = terminal.getvalue().splitlines()
    assert row == f"世{'x' * (length - 2)}{' ' * gap}{'y' * (length + 1)}"
    assert len(rule) == 2 * length + 1 + gap <= 80


def test_a_wide_table_without_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    print_rows(("x" * 81,), [], Output.TABLE)
    assert terminal.getvalue() == "no rows\n"


@pytest.mark.parametrize("length", [200, 20_000])
def test_where_no_terminal_is_a_table_is_as_wide_as_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rows(("Id", "Text"), [{"Id": "i" * length, "Text": "t" * length}], Output.TABLE)
    header, rule, row = capsys.readouterr().out.splitlines()
    assert row == f"{'i' * length}   {'t' * length}"
    assert (header.split(), len(rule)) == (["Id", "Text"], len(row))


def test_what_is_made_of_tables_is_not_cut_either(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    table = Table("a")
    table.add_row("[/x]" + "y" * 200)
    print_renderable(table)
    assert "[/x]" + "y" * 200 in terminal.getvalue()


def test_json_has_no_numbers_that_are_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    row = {"x": math.inf, "y": [-math.inf, 1.5], "z": {"n": math.nan}}
    shown = {"x": "Infinity", "y": ["-Infinity", 1.5], "z": {"n": "NaN"}}
    print_rows(tuple(row), [row], Output.JSON)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == [shown]
    print_json_line(row)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == shown


def test_sql_shows_what_it_finds(run: Run, tmp_path: Path) -> None:
    directory = make_node_directory(tmp_path / "node")
    asked = run("sql", "select '[/x]' as a, char(27) as \"b[/c]\"", "--directory", directory)
    assert asked.lines()[2] == r"[/x]   \x1b"
    assert run("sql", "select 9e999 as x", "--directory", directory, "--output", "json").json() == [{"x": "Infinity"}]


def test_benchmarks_and_the_demo_show_errors_and_paths_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    console = bench._console()
    assert (console.width, console.render_str("[/x] :warning:").plain) == (bench.WIDTH_MIN, "[/x] :warning:")
    demo = Demo(Path("[/x]"), Console(markup=False, emoji=False))
    demo._say("into [/x]")
    demo._check(False, "[/x] is there")
    demo._summarize()
    assert terminal.getvalue().splitlines()[1] == "1. Into [/x] (0 s)"
    assert terminal.getvalue().count("✗ [/x] is there") == 2
