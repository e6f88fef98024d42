"""The last registration of a broker with each of its log directories in which it was unfenced (CT-38)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpb.v1.metadata_pb2 import LogDirEpoch, RegisterBrokerRecord

REMEMBERED_MAX: Final = 1_000
"""The maximum number of log directories of a broker; the latest ones stay."""


def used_unfenced(broker: RegisterBrokerRecord, log_dirs: Iterable[bytes]) -> list[LogDirEpoch]:
    """The last unfenced registration of each directory, with the current one for `log_dirs`; the latest first."""
    found = {of.id: of.broker_epoch for of in broker.unfenced_log_dirs}
    found |= dict.fromkeys(log_dirs, broker.broker_epoch)
    latest = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [LogDirEpoch(id=log_dir, broker_epoch=epoch) for log_dir, epoch in latest[:REMEMBERED_MAX]]
