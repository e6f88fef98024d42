"""The commands of docs/operations/replication.md do what the page says, in its order."""

from __future__ import annotations

import re

import pytest

from tests.kraftlog.command_line import run
from tests.process.test_operator_pages import Reading, reading, words

__all__ = ["reading", "run"]

BROKERS = (101, 102, 103)


@pytest.mark.process
@pytest.mark.timeout(400)
def test_replication(reading: Reading) -> None:
    with reading("replication") as page:
        written = page.next()
        assert re.search(r"^Records: +1000$", written, re.MULTILINE)
        page.wait_until_in_sync()
        described = words(page.next())
        replicas = [row for row in described if row[0] == "clicks"]
        assert [row[1:4] for row in replicas[:3]] == [
            ["0", "101", "leader"], ["0", "102", "follower"], ["0", "103", "follower"],
        ]  # fmt: skip
        assert [row[8:] for row in replicas] == [["True"]] * 6
        assert sum(int(row[5]) for row in replicas if row[3] == "leader") == 1_000
        assert described[-2][:3] == ["topic", "partition_id", "broker_id"]  # and no replica that is not in sync
        elected = words(page.next())
        assert ["No", "partition", "needs", "an", "election."] in elected
        assert len([row for row in elected if row[0] == "clicks"]) == 6
        assert not [row for row in words(page.next()) if row[0] == "clicks"]
        assert re.search(r"^clicks +0 +accepted", page.next(), re.MULTILINE)
        page.wait_until_moved()
        assert [row[:3] for row in words(page.next())[2:]] == [["clicks", "0", "completed"]]
        assert re.search(r"^moved +0 +accepted", page.next(), re.MULTILINE)
        page.wait_until_moved()
        assert page.next().endswith("Removed the throttles.\n")
        moved = page.json("topics", "describe", "clicks", "--replicas")[:3]
        assert [(row["Broker"], row["Lag"], row["InSync"]) for row in moved] == [
            (broker_id, 0, True) for broker_id in reversed(BROKERS)
        ]
