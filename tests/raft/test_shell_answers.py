"""In which order a shell lets listeners and waiting fetches know that something is committed."""

from __future__ import annotations

from raft.core.errors import ProtocolError
from raft.core.events import RequestReceived
from raft.core.messages import FetchResponse, Response
from raft.core.types import Offset
from raft.listener import CommittedBatch
from raft.storage.memory import MemoryFileSystem
from raft.storage.segmented_log import LogConfig
from tests.raft.core.builders import fetch
from tests.raft.lone_node import CLUSTER_ID, LoneNode

OBSERVER_ID = 9
REQUEST_ID = 1_000


class AnsweringNode(LoneNode):
    """A sole voter that notes what leaves it, and when its listener is given what is committed."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        super().__init__(MemoryFileSystem(), LogConfig(), Offset(0), self._given)

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        assert request_id == REQUEST_ID
        assert isinstance(response, FetchResponse)
        told = response.high_watermark == self.log.log_end_offset
        self.happened.append(f"fetch answered with {'records' if records else 'nothing'}, {told=}")

    def append_settled(self, append_id: int, error: ProtocolError | None) -> None:
        super().append_settled(append_id, error)
        self.happened.append("append settled")

    def _given(self, batches: list[CommittedBatch]) -> None:
        self.happened.append("listener")


def ask(node: AnsweringNode) -> None:
    """Fetch from the end of the log, as an observer that knows all that is committed."""
    end_offset = node.log.log_end_offset
    epoch = node.shell.replica.leader_and_epoch.epoch
    request = fetch(
        OBSERVER_ID, epoch, end_offset, epoch, high_watermark=node.shell.replica.high_watermark, cluster_id=CLUSTER_ID
    )
    node.shell.step(RequestReceived(REQUEST_ID, request))


def test_a_listener_has_its_turn_before_a_parked_fetch_is_answered() -> None:
    node = AnsweringNode()
    ask(node)
    node.happened.clear()
    node.append(b"one")
    node.run()
    assert node.happened == ["append settled", "listener", "fetch answered with records, told=True"]


def test_a_fetch_is_answered_at_once_while_something_is_not_committed() -> None:
    node = AnsweringNode()
    asks_for = node.log.log_end_offset
    node.append(b"one")
    node.happened.clear()
    while node.log.log_end_offset == asks_for:
        node.run_one()
    epoch = node.shell.replica.leader_and_epoch.epoch
    node.shell.step(RequestReceived(REQUEST_ID, fetch(OBSERVER_ID, epoch, asks_for, epoch, cluster_id=CLUSTER_ID)))
    assert node.happened == ["fetch answered with records, told=False"]
