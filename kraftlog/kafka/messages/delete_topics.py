"""DeleteTopics, API key 20, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(null=True, default=None)
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    topic_names: tuple[str, ...] = array(string, "1-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(null="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", null=True, default=None, ignorable=True)


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32()
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult)
