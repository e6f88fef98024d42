"""`kraftlog sql` at a prompt: what lines amount to, and the commands that begin with a dot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.commands.sql_prompt import FURTHER, HELP, PROMPT, STATEMENT_LENGTH_MAX, Answer, Mode, SqlPrompt


class Session:
    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE topics (name TEXT)")
        self.database.execute("CREATE VIEW names AS SELECT name FROM topics")
        self.asked: list[str] = []
        self.shown: list[tuple[list[tuple[object, ...]], Mode]] = []
        self.said: list[str] = []
        self.prompt = SqlPrompt(self._ask, self._show, self.said.append, Mode.TABLE)

    def _ask(self, statement: str) -> Answer:
        self.asked.append(statement)
        found = self.database.execute(statement)
        return [of[0] for of in found.description], found.fetchall()

    def _show(self, answer: Answer, mode: Mode) -> None:
        self.shown.append((list(answer[1]), mode))

    def refusal(self, line: str) -> str:
        with pytest.raises(ApiError) as refused:
            self.prompt.take(line)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        return str(refused.value.args[0])


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.database.close()


def test_a_statement_ends_with_its_semicolon_or_with_the_input(session: Session) -> None:
    assert session.prompt.prompt == PROMPT
    for line in ("", "SELECT 1,", "';' ||", ".2"):
        session.prompt.take(line)
    assert (session.prompt.prompt, session.asked) == (FURTHER, [])
    session.prompt.take("AS x;")
    assert session.asked == ["SELECT 1,\n';' ||\n.2\nAS x;"]
    session.prompt.take("SELECT 2")
    session.prompt.finish()
    session.prompt.finish()
    assert [rows for rows, _ in session.shown] == [[(1, ";0.2")], [(2,)]]
    session.prompt.take("SELECT 3")
    session.prompt.forget()
    session.prompt.finish()
    assert len(session.asked) == 2


def test_a_statement_is_bounded(session: Session) -> None:
    session.prompt.take("SELECT '")
    assert "longer than" in session.refusal("x" * STATEMENT_LENGTH_MAX)
    assert session.prompt.prompt == PROMPT


def test_tables_are_listed_and_defined(session: Session) -> None:
    session.prompt.take(" .tables ")
    assert session.said == ["names", "topics"]
    session.said.clear()
    session.prompt.take(".schema topics")
    assert session.said == ["CREATE TABLE topics (name TEXT);"]
    session.prompt.take(".schema")
    assert len(session.said) == 3
    assert session.refusal(".schema nothing") == "table or view 'nothing' does not exist; .tables lists them"


def test_the_mode_is_of_what_follows(session: Session) -> None:
    session.prompt.take("SELECT 1;")
    session.prompt.take(".mode csv")
    session.prompt.take(".mode")
    session.prompt.take("SELECT 2;")
    assert session.shown == [([(1,)], Mode.TABLE), ([(2,)], Mode.CSV)]
    assert session.said == ["csv"]
    assert session.refusal(".mode box") == "'box' is not a mode; use one of table, json, csv"


def test_every_command_is_in_the_help_and_another_one_is_refused(session: Session) -> None:
    session.prompt.take(".help")
    assert [line.split()[0] for line in session.said] == [".help", ".mode", ".quit", ".schema", ".tables"]
    assert len(session.said) == len(HELP)
    assert session.refusal(".dump") == "command '.dump' does not exist; .help lists the commands"
    assert session.refusal(".tables all") == ".tables does not accept 'all'; .help shows its arguments"
    session.prompt.take(".quit")
    assert session.prompt.is_done
