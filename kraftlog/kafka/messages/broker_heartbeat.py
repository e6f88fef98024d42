"""BrokerHeartbeat, API key 63, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Uuid, array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Message, key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: tuple[Uuid, ...] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "2+", null=True, default=None, tag=1)


class BrokerHeartbeatResponse(Message, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
