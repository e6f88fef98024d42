"""DescribeMetrics, API key 10001: kraftlog's own, which no Kafka has (docs/rules/apis.md).

A broker reports its metrics. `kind` is 0 for a counter, 1 for a gauge, 2 for a histogram. For a histogram, `value` is
the number of observed values, `total` their sum, and each bucket has the number of values up to its bound and above
the previous bound; the bound of the last bucket is infinite.
"""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, array, float64, int8, int32, int64, string


class DescribeMetricsRequest(Message, key=10001, versions="0", flexible="0+"):
    pass


class DescribedBucket(Struct):
    upper_bound: float = float64()
    count: int = int64()


class DescribedMetric(Struct):
    group: str = string()
    name: str = string()
    label_name: str = string()
    label: str = string()
    kind: int = int8()
    value: int = int64()
    total: float = float64()
    buckets: tuple[DescribedBucket, ...] = array(DescribedBucket)


class DescribeMetricsResponse(Message, key=10001, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    metrics: tuple[DescribedMetric, ...] = array(DescribedMetric)
