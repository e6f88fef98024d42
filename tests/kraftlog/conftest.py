"""Fixtures of the tests of the command line."""

from tests.kraftlog.command_line import run

__all__ = ["run"]
