"""The clients' commands on an unmodified Kafka, whose jars are fetched by `make peers`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.java import needs_kafka
from tests.kraftlog.broker.stock_broker import StockBroker
from tests.kraftlog.clients.broker_contract import BrokerContract
from tests.kraftlog.clients.brokers import KafkaBroker
from tests.kraftlog.clients.contract import JSON, Client, check_done, client
from tests.kraftlog.command_line import run

__all__ = ["client", "run"]

pytestmark = [needs_kafka, pytest.mark.process]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockBroker]:
    stock = StockBroker(tmp_path_factory.mktemp("stock"))
    try:
        stock.start()
        yield stock
    finally:
        stock.end(signal.SIGKILL)


@pytest.fixture
def broker(stock: StockBroker) -> KafkaBroker:
    return KafkaBroker(f"localhost:{stock.port}")


class TestStockBroker(BrokerContract):
    """The contract, and what only a stock Kafka has or shows."""

    def test_records_of_transactions(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t"})
        producer.init_transactions(60)
        for value in ("aborted", "committed", "open"):
            producer.begin_transaction()
            producer.produce(topic, value.encode(), partition=0)
            producer.flush(60)
            if value == "aborted":
                producer.abort_transaction(60)
            elif value == "committed":
                producer.commit_transaction(60)
        committed = ("--isolation", "read_committed")
        assert client.consume(topic) == ["aborted", "committed", "open"]
        assert client.consume(topic, *committed) == ["committed"]
        assert client.run("consume", topic, "--to", 4, *committed).lines() == ["committed"]
        producer.commit_transaction(60)
        assert client.consume(topic, *committed, *JSON)[-1].endswith('"value":"open","headers":[]}')

    def test_keys_go_where_javas_clients_put_them(
        self, client: Client, broker: KafkaBroker, stock: StockBroker
    ) -> None:
        topic = broker.new_topic(5)
        lines = "".join(f"key-{number}:x\n" for number in range(40))
        stock.tool(
            "ConsoleProducer", "--topic", topic, "--reader-property", "parse.key=true",
            "--reader-property", "key.separator=:", text=lines,
        )  # fmt: skip
        check_done(client.produce(topic, lines, "--key-separator", ":"))
        places = [(of["key"], of["partition"]) for of in client.records(topic)]
        assert len(places) == 80
        assert len(set(places)) == 40
        assert len({partition for _, partition in places}) > 1

    def test_a_broker_that_hangs_is_waited_for_until_ctrl_c(
        self, client: Client, broker: KafkaBroker, stock: StockBroker
    ) -> None:
        topic = broker.new_topic()
        with client.started("produce", topic, "--key-separator", "=", "--partition", 0) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("k=1\n")
            process.stdin.flush()
            assert client.run("consume", topic, "--count", 1).lines() == ["1"]
            os.kill(stock.pid, signal.SIGSTOP)
            try:
                process.stdin.write("k=2\nno record\n")
                process.stdin.flush()
                assert process.stderr.readline().startswith("waiting for 1 records that are not yet acknowledged")
                process.send_signal(signal.SIGINT)
                assert process.stdout is not None
                printed = dict(line.split() for line in process.stdout)
                assert (printed["Records:"], printed["Failed:"], printed["Abandoned:"]) == ("1", "0", "1")
                assert process.wait() == 130
            finally:
                os.kill(stock.pid, signal.SIGCONT)

    def test_a_broker_that_is_killed_and_started_again_is_read_on(
        self, client: Client, broker: KafkaBroker, stock: StockBroker
    ) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, "before\n"))
        with client.started("consume", topic) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "before\n"
            stock.end(signal.SIGKILL)
            assert process.stderr.readline() == "waiting for the brokers: none of them answers\n"
            stock.start()
            check_done(client.produce(topic, "after\n"))
            assert process.stdout.readline() == "after\n"
