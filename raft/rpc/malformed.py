"""Answers undecodable bytes with INVALID_REQUEST, instead of gRPC's UNKNOWN with Python's exception in it.

gRPC decodes a request before any handler gets it. The interceptor replaces undecodable bytes by a marker object, and
ends the call with Kafka's error before the object reaches the handler.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kraftbase.errors import ApiError, ErrorCode
from raft.rpc.errors import abort

_MALFORMED: Final = object()
_REFUSAL: Final = ApiError(
    ErrorCode.INVALID_REQUEST, "the request's bytes are not a message of this method; check the versions of both sides"
)

Deserializer = Callable[[bytes], Any]


class MalformedRequests(grpc.aio.ServerInterceptor):
    """Wraps every method of a server."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's own handler behind a check that its request could be decoded."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        deserialize = _lenient(handler.request_deserializer)
        encoders = {"request_deserializer": deserialize, "response_serializer": handler.response_serializer}
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(_checked_stream(handler.stream_stream), **encoders)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(_checked_unary_stream(handler.unary_stream), **encoders)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(_checked_unary(handler.unary_unary), **encoders)
        return handler


def _lenient(deserialize: Deserializer) -> Deserializer:
    def decode(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _MALFORMED

    return decode


def _checked_unary(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        if request is _MALFORMED:
            await abort(context, _REFUSAL)
        return await method(request, context)

    return call


def _checked_unary_stream(method: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.isasyncgenfunction(method):  # writes its answers itself, as gRPC's own health service does
        return _checked_unary(method)

    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        if request is _MALFORMED:
            await abort(context, _REFUSAL)
        async with aclosing(method(request, context)) as responses:
            with suppress(StopAsyncIteration):
                while True:  # keep no reference to a large response: the next one may take long
                    yield await anext(responses)

    return call


def _checked_stream(method: Callable[..., AsyncGenerator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    async def call(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async with aclosing(method(_CheckedRequests(requests, context), context)) as responses:
            with suppress(StopAsyncIteration):
                while True:
                    yield await anext(responses)

    return call


class _CheckedRequests:
    """The requests of a stream. Keeps no request, unlike a generator, which keeps one until the next arrives."""

    def __init__(self, requests: AsyncIterator[Any], context: Any) -> None:
        self._requests = requests
        self._context = context

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        if request is _MALFORMED:
            await abort(self._context, _REFUSAL)
        return request
