"""A client that talks bytes: what it is told counts by the order of its requests, and it changes nothing."""

from __future__ import annotations

import pytest

from kraftlog.sim.broker_log.byte_client import ByteClient
from kraftlog.sim.broker_log.checkers.rules import ANSWERS
from kraftlog.sim.broker_log.definition import BROKER_LOG
from kraftlog.sim.broker_log.marks import REQUIRED
from kraftlog.sim.broker_log.zoo import connection_bugs
from kraftlog.sim.engine.mutation import Mutation, bugs_of
from kraftlog.sim.engine.parameters import Overrides

SOME_SECONDS = Overrides(seconds=10)
SEED = 3  # with a Fetch that waits when its client leaves, and an answer that waits for an earlier one
SELDOM = "bytes: acks=0 that failed closed the connection"


def test_it_does_all_that_it_can_and_what_the_logs_have_is_as_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    talked = BROKER_LOG.run_seed(SEED, SOME_SECONDS)
    assert talked.violation is None
    marks = {mark for mark in REQUIRED if mark.startswith("bytes: ")}
    assert {mark for mark in marks if talked.marks.counts[mark]} >= marks - {SELDOM}
    monkeypatch.setattr(ByteClient, "start", lambda self: None)
    silent = BROKER_LOG.run_seed(SEED, SOME_SECONDS)
    assert not any(mark.startswith("bytes: ") for mark in silent.marks.counts)
    assert silent.trace_digest == talked.trace_digest


@pytest.mark.parametrize("bug", bugs_of(connection_bugs), ids=lambda bug: bug.name)
def test_each_bug_of_a_connection_shows(bug: Mutation) -> None:
    with bug.put_in():
        assert ANSWERS in (BROKER_LOG.run_seed(SEED, SOME_SECONDS).violation or "")
