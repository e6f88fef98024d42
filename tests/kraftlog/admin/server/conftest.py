"""The admin service behind a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest_asyncio

from kraftlog.admin.server.service import AdminServicer
from kraftpb.v1 import admin_pb2_grpc
from raft.rpc.admission import Admission
from raft.rpc.limits import ServiceLimits
from raft.rpc.options import CHANNEL_OPTIONS, SERVER_OPTIONS
from tests.kraftlog.admin.server.served import Served
from tests.statemachine.conftest import memory_bench


@pytest_asyncio.fixture
async def served(database: Path) -> AsyncIterator[Served]:
    async with memory_bench(database) as bench:
        bench.log.lead()
        await bench.lead()
        await bench.with_brokers(1, 2)
        admission = Admission(ServiceLimits())
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=(admission,))
        servicer = AdminServicer(bench.controller, bench.store, bench.machine)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
            yield Served(bench, channel, port, admission)
        await server.stop(None)
