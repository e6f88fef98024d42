"""An admin service behind a server, and what tests do with it."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.channels import open_channel
from kraftlog.admin.client.operation_stream import OperationStream
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.rpc.admission import Admission
from tests.statemachine.conftest import Bench


class Served:
    """A bench behind a server, and a stub connected to it."""

    def __init__(self, bench: Bench, channel: grpc.aio.Channel, port: int, admission: Admission) -> None:
        self.admission = admission
        self.bench = bench
        self.endpoint = Endpoint("127.0.0.1", port)
        self.channel = channel
        self.stub = admin_pb2_grpc.AdminServiceStub(channel)


def numbered(*operations: admin_pb2.Operation) -> admin_pb2.OperationBatch:
    for number, operation in enumerate(operations):
        operation.correlation_id = number
    return admin_pb2.OperationBatch(operations=operations)


async def read(call: grpc.aio.StreamStreamCall[Any, Any]) -> admin_pb2.OperationResultBatch:
    """The next message, which must come."""
    message = await call.read()
    assert isinstance(message, admin_pb2.OperationResultBatch)
    return message


async def execute(served: Served, operation: admin_pb2.Operation) -> admin_pb2.OperationResult:
    """As a client does, over a stream of its own."""
    stream = await OperationStream.open(served.endpoint, open_channel(served.endpoint))
    try:
        return await stream.execute(operation, timeout_ms=20_000)
    finally:
        await stream.close()
