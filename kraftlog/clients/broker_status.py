"""The counters of each broker, from the brokers themselves, beside their state in the metadata (OT-57)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.commands.clients import committed_end_offset, connected_client
from kraftlog.kafka.messages.describe_metrics import DescribedMetric, DescribeMetricsRequest, DescribeMetricsResponse
from kraftlog.telemetry import catalogue
from kraftlog.telemetry.registry import Kind, Metric
from statemachine.query.descriptions import BrokerDescription

_SHOWN: Final[dict[str, Metric]] = {
    "Leaders": catalogue.LEADER_COUNT,
    "Partitions": catalogue.PARTITION_COUNT,
    "UnderReplicated": catalogue.UNDER_REPLICATED,
    "UnderMinIsr": catalogue.UNDER_MIN_ISR,
    "Offline": catalogue.OFFLINE_REPLICAS,
    "MaxLag": catalogue.MAX_LAG,
    "Connections": catalogue.CONNECTIONS,
    "Requests": catalogue.REQUESTS,
}
"""Columns that have one figure of a broker each."""

COLUMNS: Final = ("BrokerId", "Fenced", "State", *_SHOWN)
METRIC_COLUMNS: Final = ("Group", "Metric", "Label", "Value")

_STATES: Final = {
    0: "stopped",
    1: "starting",
    2: "catching up",
    3: "running",
    6: "controlled shutdown",
    7: "shutting down",
}

DOES_NOT_REPORT: Final = "does not report"
DOES_NOT_ANSWER: Final = "does not answer"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The state and the counters of one broker."""

    broker_id: int
    fenced: bool
    metrics: tuple[DescribedMetric, ...] | None
    """None if the broker did not report."""
    error: ApiError | None = None
    """Why the broker did not report."""

    @property
    def is_old(self) -> bool:
        """Whether the broker is of a version that does not report."""
        return self.error is not None and self.error.code is ErrorCode.UNSUPPORTED_VERSION

    @property
    def has_failed(self) -> bool:
        """Whether the broker should have answered, and did not."""
        return self.error is not None and not self.is_old

    @property
    def note(self) -> str:
        """A line for the user; empty if all is well."""
        if self.error is None:
            return ""
        if self.is_old:
            return f"broker {self.broker_id} does not report: it is of an older version"
        return f"broker {self.broker_id}: {self.error.args[0]}"

    @property
    def state(self) -> str:
        """The broker's state in words."""
        if self.metrics is None:
            return DOES_NOT_REPORT if self.is_old else DOES_NOT_ANSWER
        number = self._figure(catalogue.BROKER_STATE)
        return _STATES.get(-1 if number is None else number, str(number))

    def _figure(self, metric: Metric) -> int | None:
        """The value of a metric without labels; None if the broker did not report it."""
        for one in self.metrics or ():
            if (one.group, one.name) == (metric.group, metric.name):
                return one.value
        return None

    def row(self) -> dict[str, Any]:
        """A row with `COLUMNS`."""
        figures = {column: self._figure(metric) for column, metric in _SHOWN.items()}
        return {"BrokerId": self.broker_id, "Fenced": self.fenced, "State": self.state, **figures}

    def metric_rows(self) -> Iterator[dict[str, Any]]:
        """Rows with `METRIC_COLUMNS`."""
        for one in self.metrics or ():
            value = _in_words(one) if one.kind == Kind.HISTOGRAM.value else one.value
            yield {"Group": one.group, "Metric": one.name, "Label": one.label, "Value": value}

    def as_json(self) -> dict[str, Any]:
        """All that is known."""
        return {
            **{"BrokerId": self.broker_id, "Fenced": self.fenced, "State": self.state},
            "Metrics": None if self.metrics is None else [_as_json(one) for one in self.metrics],
            "Error": str(self.error) if self.error is not None and self.has_failed else None,
        }


def _in_words(one: DescribedMetric) -> str:
    if not one.value:
        return "0 times"
    return f"{one.value} times, {one.total / one.value:.3g} ms on average"


def _as_json(one: DescribedMetric) -> dict[str, Any]:
    kind = {of.value: of.name.lower() for of in Kind}.get(one.kind, str(one.kind))
    labels = {one.label_name: one.label} if one.label_name else {}
    shown = {"Group": one.group, "Name": one.name, "Labels": labels, "Kind": kind, "Value": one.value}
    if one.kind == Kind.HISTOGRAM.value:
        buckets = [
            {"UpTo": None if math.isinf(of.upper_bound) else of.upper_bound, "Count": of.count} for of in one.buckets
        ]
        shown |= {"Total": one.total, "Buckets": buckets}
    return shown


async def broker_status(endpoints: Sequence[Endpoint], broker_id: int | None) -> list[BrokerStatus]:
    """Of every registered broker, or of one; `endpoints` are nodes of the quorum.

    Raises ApiError: BROKER_NOT_AVAILABLE if no node answers, BROKER_ID_NOT_REGISTERED.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        brokers = (await client.list_brokers(min_applied_end_offset=offset)).brokers
    asked = [broker for broker in brokers if broker_id in (None, broker.broker_id)]
    if broker_id is not None and not asked:
        registered = ", ".join(str(broker.broker_id) for broker in brokers) or "none"
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered; these are: {registered}"
        )
    return await asyncio.gather(*(asyncio.to_thread(_ask, broker) for broker in asked))


def _ask(broker: BrokerDescription) -> BrokerStatus:
    """The report of one broker. Blocks."""
    try:
        metrics = _metrics_of(broker)
    except ApiError as error:
        return BrokerStatus(broker.broker_id, broker.fenced, None, error)
    return BrokerStatus(broker.broker_id, broker.fenced, metrics)


def _metrics_of(broker: BrokerDescription) -> tuple[DescribedMetric, ...]:
    if not broker.listeners:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is registered without a listener")
    endpoint = Endpoint(broker.listeners[0].host, broker.listeners[0].port)
    with BrokerConnection(endpoint) as connection:
        return connection.call(DescribeMetricsRequest(), DescribeMetricsResponse).metrics
