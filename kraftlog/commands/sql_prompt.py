"""`kraftlog sql` at a prompt: statements over several lines, and commands that begin with a dot, as in sqlite3."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.names import quoted


class Mode(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Answer = tuple[Sequence[str], Iterable[tuple[Any, ...]]]
Ask = Callable[[str], Answer]
Show = Callable[[Answer, Mode], None]
Say = Callable[[str], None]

STATEMENT_LENGTH_MAX: Final = 1 << 20
"""Characters of one statement, however many lines it has."""

PROMPT: Final = "sql> "
FURTHER: Final = "...> "

HELP: Final = {
    ".help": "List these commands",
    ".mode table|json|csv": "Set the format of answers; without a word, print the present one",
    ".quit": "End; so does the end of the input",
    ".schema [TABLE]": "Print how the tables and views are defined, or one of them",
    ".tables": "List the tables and views",
}

_DEFINITIONS: Final = (
    "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql IS NOT NULL"
    " AND name NOT LIKE 'sqlite%' ORDER BY name"
)


class SqlPrompt:
    """Collects lines, and runs the commands and statements in them."""

    def __init__(self, ask: Ask, show: Show, say: Say, mode: Mode) -> None:
        """`ask` answers one statement, and raises an error that the user may see."""
        self._ask = ask
        self._show = show
        self._say = say
        self._mode = mode
        self._lines: list[str] = []
        self.is_done = False
        """Whether `.quit` was among the lines."""

    @property
    def prompt(self) -> str:
        """The prompt for the next line."""
        return FURTHER if self._lines else PROMPT

    def forget(self) -> None:
        """Drop a statement that is not finished."""
        self._lines.clear()

    def take(self, line: str) -> None:
        """Run a command, or the statement that this line ends. Raises what `ask` raises, and ApiError."""
        if not self._lines and line.lstrip().startswith("."):
            self._command(line.split())
            return
        if self._lines or line.strip():
            self._lines.append(line)
        if sum(map(len, self._lines)) > STATEMENT_LENGTH_MAX:
            self.forget()
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the statement is longer than {STATEMENT_LENGTH_MAX} characters")
        if sqlite3.complete_statement("\n".join(self._lines)):
            self.finish()

    def finish(self) -> None:
        """Run the unfinished statement, as if a semicolon ended it."""
        statement = "\n".join(self._lines)
        self.forget()
        if statement.strip():
            self._show(self._ask(statement), self._mode)

    def _command(self, words: Sequence[str]) -> None:
        match words:
            case [".help"]:
                width = max(map(len, HELP))
                for name, meaning in HELP.items():
                    self._say(f"{name:{width}}  {meaning}")
            case [".mode"]:
                self._say(self._mode)
            case [".mode", mode] if mode in list(Mode):
                self._mode = Mode(mode)
            case [".mode", *others]:
                raise _wrong(f"{quoted(' '.join(others))} is not a mode; use one of {', '.join(Mode)}")
            case [".quit" | ".exit"]:
                self.is_done = True
            case [".tables"]:
                for name, _ in self._ask(_DEFINITIONS)[1]:
                    self._say(str(name))
            case [".schema"]:
                self._define(None)
            case [".schema", table]:
                self._define(table)
            case [name, *_] if name in {known.split()[0] for known in HELP}:
                raise _wrong(f"{name} does not accept {quoted(' '.join(words[1:]))}; .help shows its arguments")
            case _:
                raise _wrong(f"command {quoted(words[0])} does not exist; .help lists the commands")

    def _define(self, table: str | None) -> None:
        found = [(name, sql) for name, sql in self._ask(_DEFINITIONS)[1] if table is None or name == table]
        if not found and table is not None:
            raise _wrong(f"table or view {quoted(table)} does not exist; .tables lists them")
        for _, sql in found:
            self._say(f"{sql};")


def _wrong(what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, what)
