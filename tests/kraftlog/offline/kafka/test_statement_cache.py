"""What was loaded for SQL is kept, as long as the files are the same; it has nothing that is not shown."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from kraftlog.kafka.metadata_records import (
    ConfigRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from kraftlog.offline.kafka import statement_cache
from kraftlog.offline.kafka.directory import open_directory
from kraftlog.offline.kafka.statement_cache import COPIES_MAX, StatementCache, cache_directory
from tests.kraftlog.command_line import Run, run
from tests.kraftlog.offline.kafka.test_image import append

__all__ = ["run"]

COUNT = "SELECT count(*) AS n FROM topics"
SECRET = "opensesame"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of these tests; everything is large enough."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(statement_cache, "CACHED_BYTES_MIN", 1)
    assert cache_directory() == tmp_path / "cache" / "kraftlog" / "kafka"
    return cache_directory()


def test_the_second_statement_is_answered_from_the_copy(
    controller: Path, place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("kafka", "sql", controller, COUNT)
    (copy,) = place.iterdir()
    assert (copy.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o600, 0o700)
    with monkeypatch.context() as without:
        without.setattr("kraftlog.offline.kafka.image.load_image", None)
        second = run("kafka", "sql", controller, COUNT)
        refused = run("kafka", "sql", controller, "DELETE FROM topics")
        hidden = run("kafka", "sql", controller, "SELECT * FROM scram_credentials")
    assert second == first
    assert "may be uncommitted" in second.errors
    assert refused.code == hidden.code == 1
    run("kafka", "sql", controller, COUNT, "--snapshot-only")
    assert len(list(place.iterdir())) == 2


def test_a_changed_directory_is_loaded_again(controller: Path, place: Path, run: Run) -> None:
    run("kafka", "sql", controller, COUNT)
    append(controller, [TopicRecord(name="new", topic_id=bytes(15) + b"\xfe")])
    assert run("kafka", "sql", controller, COUNT, "--output", "json").output == '[\n  {\n    "n": 39\n  }\n]\n'
    assert len(list(place.iterdir())) == 2


def test_a_copy_has_neither_passwords_nor_credentials(controller: Path, place: Path, run: Run) -> None:
    password = ConfigRecord(resource_type=4, resource_name="11", name="ssl.key.password", value=SECRET)
    credential = UserScramCredentialRecord(name="eve", mechanism=1, salt=SECRET.encode())
    append(controller, [password, credential], [RemoveUserScramCredentialRecord(name="eve", mechanism=1)])
    run("kafka", "sql", controller, COUNT)
    directory = open_directory(controller)
    cached = StatementCache(directory, snapshot_only=False).find()
    assert cached is not None
    with closing(cached.connection) as connection:
        ((key, value),) = connection.execute("SELECT key, value FROM scram_credentials")
        assert connection.execute("SELECT value FROM configs WHERE name = 'ssl.key.password'").fetchone() == (
            "(hidden)",
        )
    assert (len(key), value) == (32, b"")
    (copy,) = place.iterdir()
    assert SECRET.encode() not in copy.read_bytes()


def test_a_damaged_copy_is_made_anew(controller: Path, place: Path, run: Run) -> None:
    first = run("kafka", "sql", controller, COUNT)
    (copy,) = place.iterdir()
    copy.write_bytes(b"no database")
    assert run("kafka", "sql", controller, COUNT) == first
    assert copy.read_bytes()[:6] == b"SQLite"


def test_only_the_last_used_are_kept(controller: Path, place: Path, run: Run) -> None:
    run("kafka", "sql", controller, COUNT)
    (oldest,) = place.iterdir()
    os.utime(oldest, (1, 1))
    for number in range(COPIES_MAX):
        append_to = open_directory(controller).segments[-1].path
        os.utime(append_to, (100 + number, 100 + number))
        run("kafka", "sql", controller, COUNT)
    assert len(list(place.iterdir())) == COPIES_MAX and not oldest.exists()


def test_without_a_place_for_it_the_answer_is_the_same(
    controller: Path, place: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run("kafka", "sql", controller, COUNT).code == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run("kafka", "sql", controller, COUNT, "--no-cache").code == 0
    assert not place.exists()


def test_a_small_directory_has_no_copy(
    controller: Path, place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent.parent))
    assert run("kafka", "sql", controller, COUNT).code == 0
    assert not place.exists()
