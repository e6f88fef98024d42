"""DescribeMetrics, an API of our own: the broker's metrics (docs/rules/apis.md)."""

from __future__ import annotations

import math

from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.describe_metrics import DescribedBucket, DescribedMetric, DescribeMetricsResponse
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.telemetry.registry import Histogram, Series


class DescribeMetricsApi:
    """Handles DescribeMetrics."""

    def __init__(self, services: BrokerServices) -> None:
        """`services.count_metrics` updates the gauges of partitions and logs."""
        self._registry = services.registry
        self._count = services.count_metrics

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting, after a count in slices."""
        request.slices.run(self._in_slices(reply))

    def _in_slices(self, reply: Reply) -> Steps:
        yield from self._count()
        described = []
        for series in self._registry.all_series():
            described.append(_described(series))
            yield
        reply(DescribeMetricsResponse(metrics=tuple(described)))


def _described(series: Series) -> DescribedMetric:
    metric, source = series.metric, series.source
    shown = DescribedMetric(
        group=metric.group, name=metric.name, label_name=metric.label, label=series.label, kind=metric.kind.value,
        value=int(series.value),
    )  # fmt: skip
    if isinstance(source, Histogram):
        shown.total = source.total
        shown.buckets = tuple(
            DescribedBucket(upper_bound=bound, count=count)
            for bound, count in zip((*source.bounds, math.inf), source.counts, strict=True)
        )
    return shown
