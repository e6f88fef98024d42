"""Many of the largest requests at once take no more memory of a broker than is said."""

from __future__ import annotations

import asyncio
import re
import struct
from pathlib import Path
from typing import Final

import pytest

from kraftlog.kafka.apis import ELEMENTS_MAX
from kraftlog.kafka.connections import ClientConnection
from kraftlog.local.cluster import LocalCluster
from tests.effort import all_cases
from tests.kraftlog.broker.largest_requests import DENSE, request_of
from tests.process.broker_process import BrokerProcess
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

MIB: Final = 1024 * 1024
AT_ONCE: Final = 10 if all_cases() else 3
BYTES_MAX: Final = (256 if all_cases() else 80) * MIB
"""Three of these requests take 40 MiB one after the other, and 104 if none waits for another."""


def most_resident_bytes(broker: BrokerProcess) -> int:
    """The most memory that it had since it was told to count anew."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def ask(broker: BrokerProcess, name: str, version: int) -> int:
    """Send the request whose elements are smallest; how large its answer is. That is taken in pieces."""
    request = request_of(name, version, DENSE, ELEMENTS_MAX)
    assert request is not None
    reader, writer = await asyncio.open_connection(*broker.address)
    writer.write(b"".join(ClientConnection("large").send(request, version)))
    (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
    left_bytes = size_bytes
    while left_bytes:
        data = await reader.read(min(left_bytes, MIB))
        assert data, f"{name}: the connection is closed"
        left_bytes -= len(data)
    writer.close()
    return int(size_bytes)


async def ask_at_once(broker: BrokerProcess, name: str, version: int) -> None:
    sizes = await asyncio.gather(*(ask(broker, name, version) for _ in range(AT_ONCE)))
    assert len(set(sizes)) == 1 and sizes[0] > MIB


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("Metadata", 0),
        pytest.param("DescribeConfigs", 1, marks=pytest.mark.slow),
        pytest.param("Produce", 3, marks=pytest.mark.slow),
        pytest.param("Produce", 13, marks=pytest.mark.slow),
        pytest.param("ListOffsets", 11, marks=pytest.mark.slow),
        pytest.param("DescribeQuorum", 2, marks=pytest.mark.slow),
        pytest.param("FindCoordinator", 6, marks=pytest.mark.slow),
        pytest.param("DescribeTopicPartitions", 0, marks=pytest.mark.slow),
    ],
)
def test_many_large_requests_at_once_take_no_more_memory_than_is_said(
    voter: LocalCluster, tmp_path: Path, name: str, version: int
) -> None:
    with BrokerProcess(addresses(voter), 60, tmp_path / "broker").running() as broker:
        idle_bytes = broker.resident_bytes()
        Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")
        asyncio.run(ask_at_once(broker, name, version))
        grown_bytes = most_resident_bytes(broker) - idle_bytes
        assert grown_bytes <= BYTES_MAX, f"{grown_bytes / MIB:.0f} MiB above idle"
        assert broker.stop() == 0
