"""The commands of docs/operations/replication.md do what the page says, in its order."""

from __future__ import annotations

import re

import pytest

from tests.kraftlog.command_line import run
from tests.process.test_operator_pages import Reading, reading, words

__all__ = ["reading", "run"]


@pytest.mark.process
@pytest.mark.timeout(400)
def test_replication(reading: Reading) -> None:
    with reading("replication") as page:
        assert re.search(r"^Records: 1000$", page.next(), re.MULTILINE)
        page.wait_until_in_sync()
        described = words(page.next())
        replicas = [row for row in described if row[0] == "clicks"]
        assert [row[1:4] for row in replicas[:3]] == [
            ["0", "101", "leader"], ["0", "102", "follower"], ["0", "103", "follower"],
        ]  # fmt: skip
        assert {row[8] for row in replicas} == {"True"}
        assert sum(int(row[5]) for row in replicas if row[3] == "leader") == 1_000
        assert len(words(page.next())[0]) == 5
