"""Envelope, API key 58, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, binary, int16


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data: bytes = binary()
    request_principal: bytes | None = binary(null=True)
    client_host_address: bytes = binary()


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = binary(null=True, default=None)
    error_code: int = int16()
