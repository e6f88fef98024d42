"""How a call that this side writes to has ended, in the words of the peer."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
import grpc.aio

T = TypeVar("T")


class CallEnd:
    """Keeps the error with which `call` ended. Make it before the first message is written.

    Consider a node that refuses a stream while we write to it. gRPC receives the node's status, then our write fails,
    and grpc.aio replaces the status by INTERNAL "Internal error from Core" (grpc#36066). A reader then sees the latter
    in nine of ten cases, and mistakes a refused operation for one that may have been carried out.
    """

    def __init__(self, call: grpc.aio.Call) -> None:
        self._first: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._note)

    def error(self, seen: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """The error that the call ended with first; `error` if none was recorded."""
        return self._first or seen

    def _note(self, call: grpc.aio.Call) -> None:
        code = _value_of(call.code())
        if code is not grpc.StatusCode.OK:
            metadata = _value_of(call.initial_metadata()), _value_of(call.trailing_metadata())
            self._first = grpc.aio.AioRpcError(code, *metadata, _value_of(call.details()))


def _value_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of `coroutine`, which does not wait because its call is done."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a call that is done has no status")
