"""Asks the controller for changes of ISRs: AlterPartition (KIP-497), in the name of every leader on this broker.

One request is under way at a time, with all the changes that have come up meanwhile (as in Kafka's
`DefaultAlterPartitionManager`). A change stays pending until the controller has answered it or the metadata says more.

Kafka sorts the errors of single partitions like this (DB-11), and so does this module:

| error | what follows |
|---|---|
| INELIGIBLE_REPLICA | the change is dropped; a follower that still wants to join asks by its next fetch |
| those that say that this broker's metadata is old | it stays pending until newer metadata comes |
| any other | it is asked for again |

An answer lets replicas join. Those that leave are waited for until the metadata says so (`_has_left`).
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
"""Partitions in one request; the others go in the next."""

RETRY_MS: Final = 50
"""Kafka's pause before a request is sent again."""

RECOVERED: Final = 0
"""A leader that says who is in sync has recovered, whatever its election was (KIP-704)."""

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
        """Ask; an ApiError says that nothing is known of the request as a whole, or that it was refused."""
        ...


class LedPartition(Protocol):
    """A partition that this broker leads, or has led when the change was asked for."""

    @property
    def topic_id(self) -> bytes:
        """Its topic's id."""
        ...

    @property
    def index(self) -> int:
        """Its number."""
        ...

    @property
    def leading(self) -> Leading | None:
        """What its leader knows; None if that is not this broker any more."""
        ...

    def isr_settled(self) -> None:
        """The controller has changed the ISR, or will not: the high watermark may rise, and who waits is told."""
        ...


class IsrChanges:
    """What the controller is asked for, and will be. For one thread."""

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
        """Ask for nothing any more."""
        self._is_stopped = True

    def ask(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        """Have the controller give a partition this ISR. Its leader has no change under way."""
        leading = partition.leading
        if leading is None or self._is_stopped:
            return
        change = leading.begin_change(isr, self._broker_epoch())
        logger.info(
            "the controller is asked for another ISR", partition=str(partition), isr=list(leading.isr), wanted=list(isr)
        )
        self._observer.decided(IsrChangeAsked(str(partition), leading.isr, isr))
        self._waiting[partition.topic_id, partition.index] = (partition, change)
        self._send()

    def _send(self) -> None:
        if self._is_under_way or self._is_stopped:
            return
        asked = {}
        for key, (partition, change) in list(self._waiting.items())[:CHANGES_MAX]:
            del self._waiting[key]
            if partition.leading is not None and partition.leading.pending is change:
                asked[key] = (partition, change)
        if not asked:
            return
        self._is_under_way = True
        request = admin_pb2.AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            partitions=[_altered(key, change) for key, (_, change) in asked.items()],
        )
        self._controller.alter_partition(request, lambda answer: self._answered(asked, answer))

    def _answered(
        self,
        asked: dict[tuple[bytes, int], tuple[LedPartition, IsrChange]],
        answer: admin_pb2.AlterPartitionResponse | ApiError,
    ) -> None:
        again = dict(asked)
        if isinstance(answer, ApiError):
            logger.info("the controller has changed no ISR; trying again", reason=str(answer))
        else:
            for result in answer.partitions:
                key = (result.topic_id, result.partition_id)
                if key in asked and not self._is_to_be_asked_again(*asked[key], result):
                    again.pop(key, None)
        for key, one in again.items():
            self._waiting.setdefault(key, one)
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
            return False  # the metadata has said more meanwhile
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
            "the controller has not changed an ISR", partition=str(partition), wanted=list(change.isr),
            error=code.name, reason=result.error_message,
        )  # fmt: skip
        self._observer.decided(IsrChangeRefused(str(partition), change.isr, code.name, result.error_message))
        if code is ErrorCode.INELIGIBLE_REPLICA:
            leading.refused(change)
            partition.isr_settled()
            return False
        return code not in _OLD_METADATA


# Consider replicas 1, which leads, and 2, and min.insync.replicas, which is raised from 1 to 2. The controller knows
# that, broker 1 does not yet. Replica 2 lags, and 1 has it removed: with one replica of two in sync nothing may be
# committed, so 2 is eligible to lead (KIP-966). If 1 took the answer, it would commit alone, and acknowledge with
# acks=all, as one is enough as far as it knows. It is lost, 2 is elected, and what was acknowledged is gone. The
# metadata has the change of the setting before that of the ISR. So until the metadata says who has left, 1 waits for
# 2 as before.
def _has_left(leading: Leading, result: admin_pb2.AlterPartitionResult) -> bool:
    """Whether an answer says that replicas have left the ISR: then it changes nothing here, the metadata will."""
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
