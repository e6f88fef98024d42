"""The room in brokers' log directories, as the active controller remembers it from their heartbeats (CT-66).

Which directories are full is in the log, with the broker's registration. This module keeps what is not in the log: how
much room the others have, and which partitions were recently given another leader for lack of room. A controller that
becomes active starts over. Times are arguments: monotonic, in milliseconds, and never lower than an earlier one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from kraftpb.v1.admin_pb2 import LogDirSpace
from kraftpb.v1.metadata_pb2 import PartitionRecord, RegisterBrokerRecord
from statemachine.tables.table import Key
from statemachine.words.full_log_dirs import is_known

LOW_WATER_MARKS_MIN: Final = 2
"""A replica may become leader if its directory has this many times the low-water mark free: else it would soon be full,
too.
"""

PAUSE_MS: Final = 60_000
"""A partition gets another leader for lack of room at most once in this time."""


class DiskSpace:
    """Of all brokers."""

    def __init__(self) -> None:
        self._roomy: dict[int, frozenset[bytes]] = {}
        self._moved: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        """By partition: when another leader was decided on, and the leader epoch until then."""

    def report(self, broker_id: int, spaces: Iterable[LogDirSpace]) -> None:
        """Note what a broker reports about its directories."""
        self._roomy[broker_id] = frozenset(
            of.log_dir
            for of in spaces
            if not of.is_full and of.free_bytes >= LOW_WATER_MARKS_MIN * max(0, of.low_water_bytes)
        )

    def remove(self, broker_id: int) -> None:
        """The broker is fenced, or gone: its reports may be wrong by now."""
        self._roomy.pop(broker_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._roomy.clear()
        self._moved.clear()

    @property
    def is_there_any(self) -> bool:
        """Whether any broker has room for more leaderships."""
        return any(self._roomy.values())

    def has_room(self, broker: RegisterBrokerRecord, log_dir: bytes) -> bool:
        """Whether a broker has reported much room in the directory of one of its replicas."""
        roomy = self._roomy.get(broker.broker_id, frozenset())
        if is_known(log_dir):
            return log_dir in roomy
        return bool(broker.log_dirs) and roomy.issuperset(broker.log_dirs)

    def may_move(self, partition: PartitionRecord, now_ms: float) -> bool:
        """Whether a partition has had its leader for long enough, or the log has refused the change."""
        while self._moved and next(iter(self._moved.values()))[0] + PAUSE_MS <= now_ms:
            self._moved.popitem(last=False)
        moved = self._moved.get((partition.topic_id, partition.partition_id))
        return moved is None or moved[1] == partition.leader_epoch

    def moves(self, partition: PartitionRecord, now_ms: float) -> None:
        """Note that a partition, in its present state, is to get another leader."""
        key = (partition.topic_id, partition.partition_id)
        self._moved[key] = now_ms, partition.leader_epoch
        self._moved.move_to_end(key)
