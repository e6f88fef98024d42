"""The clients' commands on librdkafka's mock broker, which takes no second to start.

A stock Kafka passes the same contract (`test_stock_broker.py`), once `make peers` has fetched it.
"""

from __future__ import annotations

import pytest

from tests.kraftlog.clients.brokers import Broker, MockBroker
from tests.kraftlog.clients.contract import ClientsContract, client
from tests.kraftlog.command_line import run

__all__ = ["client", "run"]


@pytest.fixture(scope="module")
def broker() -> Broker:
    return MockBroker()


class TestMockBroker(ClientsContract):
    """The contract."""
