"""docs/operations/clients.md has every option of the clients' commands, with its default."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import pytest
import typer

from kraftlog.cli.main import app
from kraftlog.cli.shared.timeout import with_timeout
from kraftlog.clients.producing import DELIVERY_TIMEOUT_SECONDS
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "operations" / "clients.md").read_text()
SECTIONS: Final = {"produce": "## Writing", "consume": "## Reading", "log-dirs": "## Log directories"}
SAID_ABOVE: Final = {"--bootstrap-server", "--help"}


def documented(command: str) -> dict[str, str]:
    """Each option in the table of the command's section, and what is said to be its default."""
    section = PAGE.partition(SECTIONS[command])[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`--[^|]*) \| ([^|]*) \|", section, re.MULTILINE)
    return {option: default for options, default in rows for option in re.findall(r"`(--[a-z-]+)`", options)}


@cache
def options(command: str) -> dict[str, Any]:
    """Of the command. To make all of them takes 0.1 s."""
    group: Any = with_timeout(typer.main.get_command(app))
    found = [of for of in group.commands[command].params if of.param_type_name == "option"]
    return {name: of for of in found for name in (*of.opts, *of.secondary_opts) if name.startswith("--")}


@pytest.mark.parametrize("command", SECTIONS)
def test_the_page_has_every_option(command: str) -> None:
    assert set(documented(command)) == set(options(command)) - SAID_ABOVE
    assert f"kraftlog {command}" in PAGE


def test_the_help_of_produces_timeout_is_about_one_record() -> None:
    told = options("produce")["--timeout"].help
    assert "acknowledged" in told
    assert f"default: {DELIVERY_TIMEOUT_SECONDS:g}" in told


@pytest.mark.parametrize("command", SECTIONS)
def test_the_defaults_on_the_page_are_the_codes(command: str) -> None:
    for name, default in documented(command).items():
        value = options(command)[name].default
        if value not in (None, False) and not callable(value):
            assert str(getattr(value, "value", value)) == default, name
