"""Answers undecodable bytes with INVALID_REQUEST, instead of gRPC's UNKNOWN with Python's exception in it.

gRPC decodes a request before any handler gets it. The interceptor replaces undecodable bytes by a mark, and ends the
call with Kafka's error where the mark would reach the handler.
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
    ErrorCode.INVALID_REQUEST, "the request's bytes are no message of this method; check the versions of both sides"
)

Deserializer = Callable[[bytes], Any]


class MalformedRequests(grpc.aio.ServerInterceptor):
    """Wraps every method of a server."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's own handler behind a check that its request could be decoded."""
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
    if not inspect.isasyncgenfunction(method):  # it writes its answers itself, as gRPC's own health service does
        return _checked_unary(method)

    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        if request is _MALFORMED:
            await abort(context, _REFUSAL)
        async with aclosing(method(request, context)) as responses:
            with suppress(StopAsyncIteration):
                while True:  # keep no response, which may be large: the next may take long
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
    """The requests of a stream. It keeps none, as a generator would until the next one arrives."""

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
