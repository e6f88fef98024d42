"""A publisher on a simulated node. It keeps the topics that deltas describe (CT-64)."""

from __future__ import annotations

import sqlite3

from kraftbase.ids import id_to_bytes
from kraftbase.types import Offset
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.observation.service import Watched
from statemachine.replay.deltas import MetadataDelta


class Watcher:
    """The publisher of one process."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Start with the topics in `metadata`."""
        topics = metadata.execute("SELECT topic_id, name FROM topics").fetchall()
        named = {id_to_bytes(topic_id): name for topic_id, name in topics}
        self._process.machine.view.watched = Watched(end_offset, named)

    def on_delta(self, delta: MetadataDelta) -> None:
        """Apply the changes of `delta`. A delta that is not newer than the last one is a violation."""
        watched = self._process.machine.view.watched
        if watched is None or delta.end_offset <= watched.end_offset:
            self._process.host.report_violation(f"a publisher received {delta} after {watched}")
            return
        watched.end_offset = delta.end_offset
        for change in delta.topics:
            before, after = change.before, change.after
            if before is not None:
                watched.is_out_of_order |= watched.topics.pop(before.topic_id, None) != before.name
            if after is not None:
                watched.topics[after.topic_id] = after.name
