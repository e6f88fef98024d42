"""A copy of a live database: whole, small in memory, and nothing is left of it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import StorageError
from statemachine.store.private_copy import DIRECTORY_VARIABLE, open_copy
from statemachine.store.store import MetadataStore
from tests.paths import ROOT
from tests.statemachine.builders import batch, config, no_op
from tests.statemachine.snapshots import content


def test_it_is_what_was_committed_when_it_was_made(store: MetadataStore) -> None:
    store.apply([batch(0, [config("topic", "retention.ms", "1")])])
    before = content(store.reader)
    with closing(open_copy(store.path)) as copy:
        store.apply([batch(1, [config("topic", "retention.ms", "2")])])
        assert store.write_ahead_log.start_over()  # the copy holds nothing of it
        assert content(copy) == before
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            copy.execute("DELETE FROM configs")


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"something else" * 1_000)
    for name in ("metadata.db", "nothing.db"):
        with pytest.raises(StorageError, match=name):
            open_copy(tmp_path / name)


def test_a_damaged_one_is_refused(store: MetadataStore) -> None:
    store.apply([batch(0, [config(f"topic-{number}", "retention.ms", "1") for number in range(1_000)])])
    assert store.write_ahead_log.start_over()
    os.truncate(store.path, 8_192)
    with pytest.raises(StorageError, match=r"cannot (copy|read) the metadata database"):
        open_copy(store.path).execute("SELECT count(*) FROM configs")


def test_a_large_one_is_in_a_file_without_a_name_where_it_is_told(store: MetadataStore, tmp_path: Path) -> None:
    for offset in range(80):
        store.apply([batch(offset, [config(f"topic-{offset}", "name", "x" * 1_000_000)])])
    store.apply([batch(80, [no_op()])])
    directory = tmp_path / "copies"
    directory.mkdir()
    script = (
        "import os, sys; from pathlib import Path\n"
        "from statemachine.store.private_copy import open_copy\n"
        "copy = open_copy(Path(sys.argv[1]))\n"
        "copy.execute('SELECT count(*), max(length(value)) FROM configs').fetchall()\n"
        "links = [os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd')\n"
        "         if os.path.lexists(f'/proc/self/fd/{name}')]\n"
        "print(*[link for link in links if 'etilqs' in link], sep='|')\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(store.path)],
        env={**os.environ, DIRECTORY_VARIABLE: str(directory)},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert said.startswith(f"{directory}/")
    assert "(deleted)" in said
    assert list(directory.iterdir()) == []
