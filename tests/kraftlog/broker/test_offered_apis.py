"""What our broker offers beside what a stock Kafka 4.3.0 does: docs/rules/apis.md has a reason for what is missing.

`pytest -s` prints both lists side by side.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from kraftbase.endpoint import Endpoint
from kraftlog.broker.shell.broker_states import KAFKAS_STATES, Serving
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.kafka.apis import NAMES, OWN_NAMES, OWN_SOFTWARE, api_of
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.messages.describe_metrics import DescribeMetricsRequest, DescribeMetricsResponse
from kraftlog.kafka.notation import Versions
from kraftlog.telemetry.catalogue import CATALOGUE
from raft.observe import parse_endpoint
from tests.java import needs_kafka
from tests.kraftlog.broker.stock_broker import StockBroker
from tests.kraftlog.command_line import kraftlog
from tests.paths import ROOT
from tests.process.test_up import up

pytestmark = pytest.mark.process

PAGE: Final = (ROOT / "docs" / "rules" / "apis.md").read_text()
REASONS: Final = {int(key): name for key, name in re.findall(r"^\| (\d+) \| (\w+) \| \S.* \|$", PAGE, re.MULTILINE)}

STOCK: Final = {
    0: ("Produce", "0-13"),
    1: ("Fetch", "4-18"),
    2: ("ListOffsets", "1-11"),
    3: ("Metadata", "0-13"),
    8: ("OffsetCommit", "2-10"),
    9: ("OffsetFetch", "1-10"),
    10: ("FindCoordinator", "0-6"),
    11: ("JoinGroup", "0-9"),
    12: ("Heartbeat", "0-4"),
    13: ("LeaveGroup", "0-5"),
    14: ("SyncGroup", "0-5"),
    15: ("DescribeGroups", "0-6"),
    16: ("ListGroups", "0-5"),
    17: ("SaslHandshake", "0-1"),
    18: ("ApiVersions", "0-4"),
    19: ("CreateTopics", "2-7"),
    20: ("DeleteTopics", "1-6"),
    21: ("DeleteRecords", "0-2"),
    22: ("InitProducerId", "0-5"),
    23: ("OffsetForLeaderEpoch", "2-4"),
    24: ("AddPartitionsToTxn", "0-5"),
    25: ("AddOffsetsToTxn", "0-4"),
    26: ("EndTxn", "0-5"),
    27: ("WriteTxnMarkers", "1-2"),
    28: ("TxnOffsetCommit", "0-5"),
    29: ("DescribeAcls", "1-3"),
    30: ("CreateAcls", "1-3"),
    31: ("DeleteAcls", "1-3"),
    32: ("DescribeConfigs", "1-4"),
    33: ("AlterConfigs", "0-2"),
    34: ("AlterReplicaLogDirs", "1-2"),
    35: ("DescribeLogDirs", "1-5"),
    36: ("SaslAuthenticate", "0-2"),
    37: ("CreatePartitions", "0-3"),
    38: ("CreateDelegationToken", "1-3"),
    39: ("RenewDelegationToken", "1-2"),
    40: ("ExpireDelegationToken", "1-2"),
    41: ("DescribeDelegationToken", "1-3"),
    42: ("DeleteGroups", "0-2"),
    43: ("ElectLeaders", "0-2"),
    44: ("IncrementalAlterConfigs", "0-1"),
    45: ("AlterPartitionReassignments", "0-1"),
    46: ("ListPartitionReassignments", "0"),
    47: ("OffsetDelete", "0"),
    48: ("DescribeClientQuotas", "0-1"),
    49: ("AlterClientQuotas", "0-1"),
    50: ("DescribeUserScramCredentials", "0"),
    51: ("AlterUserScramCredentials", "0"),
    55: ("DescribeQuorum", "0-2"),
    57: ("UpdateFeatures", "0-2"),
    60: ("DescribeCluster", "0-2"),
    61: ("DescribeProducers", "0"),
    64: ("UnregisterBroker", "0"),
    65: ("DescribeTransactions", "0"),
    66: ("ListTransactions", "0-2"),
    68: ("ConsumerGroupHeartbeat", "0-1"),
    69: ("ConsumerGroupDescribe", "0-1"),
    74: ("ListConfigResources", "0-1"),
    75: ("DescribeTopicPartitions", "0"),
    76: ("ShareGroupHeartbeat", "1"),
    77: ("ShareGroupDescribe", "1"),
    78: ("ShareFetch", "1-2"),
    79: ("ShareAcknowledge", "1-2"),
    80: ("AddRaftVoter", "0-1"),
    81: ("RemoveRaftVoter", "0"),
    83: ("InitializeShareGroupState", "0"),
    84: ("ReadShareGroupState", "0"),
    85: ("WriteShareGroupState", "0-1"),
    86: ("DeleteShareGroupState", "0"),
    87: ("ReadShareGroupStateSummary", "0-1"),
    88: ("StreamsGroupHeartbeat", "0"),
    89: ("StreamsGroupDescribe", "0"),
    90: ("DescribeShareGroupOffsets", "0-1"),
    91: ("AlterShareGroupOffsets", "0"),
    92: ("DeleteShareGroupOffsets", "0"),
}
"""By key, as a stock broker 4.3.0 answers ApiVersions with its default settings."""


def offered_by(endpoint: Endpoint, software: str = "apache-kafka-java") -> dict[int, Versions]:
    with BrokerConnection(endpoint) as connection:
        asked = ApiVersionsRequest(client_software_name=software, client_software_version="0")
        answer = connection.call(asked, ApiVersionsResponse)
    return {of.api_key: Versions(of.min_version, of.max_version) for of in answer.api_keys}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Where our broker listens."""
    with up(tmp_path_factory.mktemp("apis") / "cluster", "--voters", 1, "--brokers", 1) as (_, controllers):
        (listed,) = kraftlog("brokers", "list", "--bootstrap-server", controllers, "--output", "json").json()
        yield parse_endpoint(listed["Endpoints"][0].partition("://")[2])


@pytest.fixture(scope="module")
def offered(endpoint: Endpoint) -> Mapping[int, Versions]:
    """What our broker says to a client of Kafka's, over its socket."""
    return offered_by(endpoint)


def test_every_api_of_a_stock_broker_is_offered_or_has_a_reason(offered: Mapping[int, Versions]) -> None:
    sys.stdout.write(f"\n{'key':>3} {'API':<28} {'Kafka':<6} kraftlog\n")
    for key, (name, versions) in STOCK.items():
        sys.stdout.write(f"{key:>3} {name:<28} {versions:<6} {offered.get(key, '')}\n")
    names = {key: name for key, (name, _) in STOCK.items()}
    missing = {key: name for key, name in names.items() if key not in offered}
    assert {key: name for key, name in missing.items() if key not in REASONS} == {}, "give the reason on the page"
    assert {key: name for key, name in REASONS.items() if key not in missing} == {}, "offered: take it off the page"
    assert {key: REASONS[key] for key in missing} == missing


def test_what_is_offered_is_inside_the_ranges_of_a_stock_broker(offered: Mapping[int, Versions]) -> None:
    assert {key for key in offered if key not in STOCK} == set()
    assert {key: NAMES[key] for key in offered} == {key: STOCK[key][0] for key in offered}
    outside = {
        NAMES[key]: str(ours)
        for key, ours in offered.items()
        for theirs in [Versions.parse(STOCK[key][1])]
        if ours.lowest not in theirs or ours.highest not in theirs
    }
    assert outside == {}
    narrower = {NAMES[key] for key, ours in offered.items() if str(ours) != STOCK[key][1]}
    assert narrower == {"Produce"}, "the page says which are narrower, and why"


def test_a_running_broker_shows_every_metric_of_the_catalogue(endpoint: Endpoint) -> None:
    with BrokerConnection(endpoint) as connection:
        metrics = connection.call(DescribeMetricsRequest(), DescribeMetricsResponse).metrics
    assert {(of.group, of.name) for of in metrics} == {(of.group, of.name) for of in CATALOGUE}
    states = [of.value for of in metrics if of.name == "BrokerState"]
    assert states == [KAFKAS_STATES[Serving]]


def test_our_own_client_is_told_of_our_own_apis_too_and_the_page_has_them(
    endpoint: Endpoint, offered: Mapping[int, Versions]
) -> None:
    own = {key: versions for key, versions in offered_by(endpoint, OWN_SOFTWARE).items() if key not in offered}
    assert {key: str(versions) for key, versions in own.items()} == {
        key: str(api_of(key).versions) for key in OWN_NAMES
    }
    assert {int(key): name for key, name in re.findall(r"^(\d+), (\w+), is our own", PAGE, re.MULTILINE)} == OWN_NAMES
    assert min(OWN_NAMES) > 10 * max(STOCK)


@needs_kafka
def test_the_list_is_that_of_a_stock_broker(tmp_path: Path) -> None:
    broker = StockBroker(tmp_path)
    try:
        broker.start()
        found = offered_by(Endpoint("localhost", broker.port))
    finally:
        broker.end(signal.SIGKILL)
    assert {key: str(versions) for key, versions in found.items()} == {
        key: versions for key, (_, versions) in STOCK.items()
    }
