"""Requests changes of ISRs from the controller by AlterPartition (KIP-497), for every leader on this broker.

At most one request is in flight; the next one has all changes that have gathered since (as in Kafka's
`DefaultAlterPartitionManager`). A change stays pending until the controller answers it or newer metadata is applied.

The errors of single partitions are handled as in Kafka (DB-11):

| error | consequence |
|---|---|
| INELIGIBLE_REPLICA | the change is dropped; the next Fetch of a follower that still qualifies proposes it again |
| one that shows that this broker's metadata is old | the change stays pending until newer metadata is applied |
| any other | the change is requested again |

The controller's answer lets replicas join. A removed replica counts until the metadata has its removal (`_has_left`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime
from kraftlog.replicas.replication.leading import IsrChange, Leading
from kraftlog.telemetry.observer import BrokerObserver, IsrChangeAsked, IsrChanged, IsrChangeRefused
from kraftpb.v1 import admin_pb2
from raft.rpc import codec

CHANGES_MAX: Final = 2_000
"""The most partitions in one request; the next request has the others."""

RETRY_MS: Final = 50
"""Kafka's pause before a request is sent again."""

RECOVERED: Final = 0
"""A leader that requests an ISR has recovered, even if its election was unclean (KIP-704)."""

_OLD_METADATA: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NEW_LEADER_ELECTED,
    }
)  # fmt: skip

OnAnswer = Callable[[admin_pb2.AlterPartitionResponse | ApiError], None]
"""Called once."""

logger = structlog.get_logger(__name__)


class Controller(Protocol):
    """The active controller, as brokers reach it."""

    def alter_partition(self, request: admin_pb2.AlterPartitionRequest, on_answer: OnAnswer) -> None:
        """Send the request. An ApiError means that it was refused, or that its outcome is unknown."""
        ...


class LedPartition(Protocol):
    """A partition that this broker leads, or led when the change was requested."""

    @property
    def topic_id(self) -> bytes:
        """The topic's id."""
        ...

    @property
    def index(self) -> int:
        """The partition's number."""
        ...

    @property
    def leading(self) -> Leading | None:
        """The leader's state; None if this broker no longer leads."""
        ...

    def isr_settled(self) -> None:
        """Apply the end of a change, made or refused: the high watermark may rise, and watchers are notified."""
        ...


class IsrChanges:
    """The ISR changes that are requested or about to be. For one thread."""

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], controller: Controller, runtime: Runtime,
        observer: BrokerObserver,
    ) -> None:  # fmt: skip
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._runtime = runtime
        self._observer = observer
        self._waiting: dict[tuple[bytes, int], tuple[LedPartition, IsrChange]] = {}
        self._is_under_way = False
        self._is_stopped = False

    def stop(self) -> None:
        """Send no more requests."""
        self._is_stopped = True

    def ask(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        """Request this ISR for a partition, whose leader must have no pending change."""
        leading = partition.leading
        if leading is None or self._is_stopped:
            return
        change = leading.begin_change(isr, self._broker_epoch())
        logger.info("requesting an ISR change", partition=str(partition), isr=list(leading.isr), wanted=list(isr))
        self._observer.decided(IsrChangeAsked(str(partition), leading.isr, isr))
        self._waiting[partition.topic_id, partition.index] = (partition, change)
        self._send()

    def _send(self) -> None:
        if self._is_under_way or self._is_stopped:
            return
        proposed = {}
        for key, (partition, change) in list(self._waiting.items())[:CHANGES_MAX]:
            del self._waiting[key]
            if partition.leading is not None and partition.leading.pending is change:
                proposed[key] = (partition, change)
        if not proposed:
            return
        self._is_under_way = True
        request = admin_pb2.AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            partitions=[_altered(key, change) for key, (_, change) in proposed.items()],
        )
        self._controller.alter_partition(request, lambda answer: self._answered(proposed, answer))

    def _answered(
        self,
        proposed: dict[tuple[bytes, int], tuple[LedPartition, IsrChange]],
        answer: admin_pb2.AlterPartitionResponse | ApiError,
    ) -> None:
        again = dict(proposed)
        if isinstance(answer, ApiError):
            logger.info("a request for ISR changes failed; retrying", reason=str(answer))
        else:
            for result in answer.partitions:
                key = (result.topic_id, result.partition_id)
                if key in proposed and not self._is_to_be_asked_again(*proposed[key], result):
                    again.pop(key, None)
        for key, proposal in again.items():
            self._waiting.setdefault(key, proposal)
        if again:
            self._runtime.call_later(RETRY_MS, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._is_under_way = False
        self._send()

    def _is_to_be_asked_again(
        self, partition: LedPartition, change: IsrChange, result: admin_pb2.AlterPartitionResult
    ) -> bool:
        leading = partition.leading
        if leading is None or leading.pending is not change:
            return False  # newer metadata has replaced the change
        code = codec.error_from_proto(result.error_code)
        if code is ErrorCode.NONE:
            self._observer.decided(IsrChanged(str(partition), leading.isr, tuple(result.isr)))
            if _has_left(leading, result):
                return False
            if result.leader_epoch == leading.leader_epoch and leading.committed(
                change, tuple(result.isr), result.partition_epoch
            ):
                partition.isr_settled()
            return False
        logger.info(
            "the controller refused an ISR change", partition=str(partition), wanted=list(change.isr),
            error=code.name, reason=result.error_message,
        )  # fmt: skip
        self._observer.decided(IsrChangeRefused(str(partition), change.isr, code.name, result.error_message))
        if code is ErrorCode.INELIGIBLE_REPLICA:
            leading.refused(change)
            partition.isr_settled()
            return False
        return code not in _OLD_METADATA


# Consider replicas 1, the leader, and 2, and a min.insync.replicas that is raised from 1 to 2. The controller has
# applied that, broker 1 has not. Replica 2 lags, and 1 requests its removal. With only one replica in sync nothing may
# be committed, so 2 remains eligible to lead (KIP-966). If 1 applied the answer, it would commit alone and acknowledge
# acks=all, since by its metadata one replica is enough. Then 1 is lost, 2 is elected, and acknowledged records are
# gone. In the metadata the change of the setting precedes that of the ISR. So 1 counts 2 until it has applied the
# removal from the metadata.
def _has_left(leading: Leading, result: admin_pb2.AlterPartitionResult) -> bool:
    """Whether replicas have left the ISR by an answer, which is then ignored: the metadata will have the change."""
    return result.partition_epoch > leading.partition_epoch and not set(leading.isr) <= set(result.isr)


def _altered(key: tuple[bytes, int], change: IsrChange) -> admin_pb2.AlteredPartition:
    topic_id, index = key
    return admin_pb2.AlteredPartition(
        topic_id=topic_id,
        partition_id=index,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        leader_recovery_state=RECOVERED,
        new_isr=[
            admin_pb2.IsrMember(broker_id=broker_id, broker_epoch=broker_epoch)
            for broker_id, broker_epoch in zip(change.isr, change.broker_epochs, strict=True)
        ],
    )
