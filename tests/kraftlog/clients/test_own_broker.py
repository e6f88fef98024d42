"""The clients' commands on our own broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kraftlog.clients.broker_contract import BrokerContract
from tests.kraftlog.clients.brokers import OwnBroker
from tests.kraftlog.clients.contract import client
from tests.kraftlog.command_line import kraftlog, run
from tests.process.test_up import up

__all__ = ["client", "run"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    with up(tmp_path_factory.mktemp("own") / "cluster", "--voters", 1, "--brokers", 1) as (_, controllers):
        (listed,) = kraftlog("brokers", "list", "--bootstrap-server", controllers, "--output", "json").json()
        yield OwnBroker(listed["Endpoints"][0].partition("://")[2], controllers)


class TestOwnBroker(BrokerContract):
    """The contract."""
