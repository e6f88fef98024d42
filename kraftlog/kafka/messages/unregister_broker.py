"""UnregisterBroker, API key 64, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, int16, int32, string


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=True)
