"""Fixtures of the tests of the command line."""

from tests.kraftlog.commands import run

__all__ = ["run"]
