"""Every metric of a broker, by the names that operators know from Kafka: `docs/operations/metrics.md` lists them.

Kafka's metrics per topic or per client are here for the whole broker, since the number of topics and clients is
unbounded.
"""

from __future__ import annotations

from typing import Final

from kraftlog.telemetry.registry import Kind, Metric

KRAFTLOG: Final = "kraftlog"
"""The group of the metrics that Kafka does not have, or not in this form."""

_REPLICAS: Final = "ReplicaManager"
_FETCHERS: Final = "ReplicaFetcherManager"
_SOCKETS: Final = "socket-server-metrics"
_SESSIONS: Final = "FetchSessionCache"
_LOGS: Final = "LogManager"
_PURGATORY: Final = "DelayedOperationPurgatory"
_REQUESTS: Final = "RequestMetrics"

COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# --- the broker -----------------------------------------------------------------------------------------------------

BROKER_STATE = Metric(
    "KafkaServer", "BrokerState", GAUGE,
    "1 starting, 2 catching up with the metadata, 3 running, 6 in controlled shutdown, 7 shutting down",
)  # fmt: skip
APPLIED_OFFSET = Metric(
    "broker-metadata-metrics", "last-applied-record-offset", GAUGE,
    "the last offset of the metadata log that the broker has applied; -1 for none",
)  # fmt: skip

FENCED = Metric(KRAFTLOG, "Fenced", GAUGE, "1 if the controller has fenced the broker, as its last answer says")

# --- replicas -------------------------------------------------------------------------------------------------------

PARTITION_COUNT = Metric(_REPLICAS, "PartitionCount", GAUGE, "replicas on this broker")
LEADER_COUNT = Metric(_REPLICAS, "LeaderCount", GAUGE, "partitions that this broker leads")
UNDER_REPLICATED = Metric(
    _REPLICAS, "UnderReplicatedPartitions", GAUGE,
    "of those that it leads, how many have fewer replicas in sync than they should have",
)  # fmt: skip
UNDER_MIN_ISR = Metric(
    _REPLICAS, "UnderMinIsrPartitionCount", GAUGE,
    "of those that it leads, how many have fewer replicas in sync than `min.insync.replicas`: acks=all is refused",
)  # fmt: skip
AT_MIN_ISR = Metric(
    _REPLICAS, "AtMinIsrPartitionCount", GAUGE,
    "of those that it leads, how many have just `min.insync.replicas` replicas in sync",
)  # fmt: skip
REASSIGNING = Metric(_REPLICAS, "ReassigningPartitions", GAUGE, "of those that it leads, how many are reassigned")
OFFLINE_REPLICAS = Metric(
    _REPLICAS, "OfflineReplicaCount", GAUGE, "replicas whose log is offline: a failed directory, or damage"
)
WITHOUT_LEADER = Metric(
    KRAFTLOG, "PartitionsWithoutLeader", GAUGE,
    "replicas on this broker whose partition has no leader; Kafka's controller has OfflinePartitionsCount",
)  # fmt: skip
MAX_LAG = Metric(_FETCHERS, "MaxLag", GAUGE, "the most offsets that a replica here lacks below its high watermark")
FAILED_PARTITIONS = Metric(
    _FETCHERS, "FailedPartitionsCount", GAUGE, "replicas here that are not fetched until the metadata changes"
)

ISR_SHRINKS = Metric(
    _REPLICAS, "IsrShrinksPerSec", COUNTER, "changes that this leader requested by which replicas left an ISR"
)
ISR_EXPANDS = Metric(_REPLICAS, "IsrExpandsPerSec", COUNTER, "changes by which replicas joined an ISR of this leader")
FAILED_ISR_UPDATES = Metric(
    _REPLICAS, "FailedIsrUpdatesPerSec", COUNTER, "changes of an ISR that the controller has refused"
)
REFUSED_LEADERSHIPS = Metric(
    KRAFTLOG, "RefusedLeaderships", COUNTER, "how often this broker was to lead a partition whose log is offline"
)
TRUNCATIONS = Metric(
    KRAFTLOG,
    "LogTruncations",
    COUNTER,
    "how often a replica here has truncated its log where it diverged from its leader's",
)

# --- logs -----------------------------------------------------------------------------------------------------------

LOG_SIZE = Metric("Log", "Size", GAUGE, "bytes of all online logs in a log directory", "logDirectory")
LOG_FLUSHES = Metric(
    "LogFlushStats", "LogFlushRateAndTimeMs", HISTOGRAM,
    "how long flushes took, each of all appends of a log directory that waited for one", "logDirectory",
)  # fmt: skip
OFFLINE_DIRECTORIES = Metric(_LOGS, "OfflineLogDirectoryCount", GAUGE, "log directories that are offline")
DIRECTORY_OFFLINE = Metric(_LOGS, "LogDirectoryOffline", GAUGE, "1 if a log directory is offline", "logDirectory")

# --- requests -------------------------------------------------------------------------------------------------------

TOTAL_TIME = Metric(
    _REQUESTS, "TotalTimeMs", HISTOGRAM,
    "from the start of a request's handling to its answer, including the time that it waited", "request",
)  # fmt: skip
THROTTLE_TIME = Metric(
    KRAFTLOG, "QuotaThrottleTimeMs", HISTOGRAM, "how long clients that have exceeded a quota are made to wait", "quota"
)
QUOTA_CLIENTS = Metric(KRAFTLOG, "QuotaClientCount", GAUGE, "clients that are under a quota, whose rates are tracked")
FETCH_SESSIONS = Metric(_SESSIONS, "NumIncrementalFetchSessions", GAUGE, "fetch sessions")
SESSION_PARTITIONS = Metric(_SESSIONS, "NumIncrementalFetchPartitionsCached", GAUGE, "partitions of all fetch sessions")
SESSION_EVICTIONS = Metric(
    _SESSIONS, "IncrementalFetchSessionEvictionsPerSec", COUNTER, "fetch sessions that were evicted for others"
)

PURGATORY_SIZE = Metric(
    _PURGATORY, "PurgatorySize", GAUGE, "requests that wait for others: Fetches for records", "delayedOperation"
)
FETCHES_EXPIRED = Metric(
    "DelayedFetchMetrics", "ExpiresPerSec", COUNTER,
    "parked Fetches that ended without enough bytes: their time was over, or their client gone", "fetcherType",
)  # fmt: skip

# --- connections ----------------------------------------------------------------------------------------------------

CONNECTIONS = Metric(_SOCKETS, "connection-count", GAUGE, "connections")
CONNECTIONS_MADE = Metric(
    _SOCKETS, "connection-creation-total", COUNTER, "connections that were accepted, with those refused at once"
)
CONNECTIONS_CLOSED = Metric(
    _SOCKETS, "connection-close-total", COUNTER, "connections that have ended, by the reason", "reason"
)
REQUESTS = Metric(_SOCKETS, "request-total", COUNTER, "requests whose handling has begun")
BYTES_IN = Metric(_SOCKETS, "incoming-byte-total", COUNTER, "bytes of requests")
BYTES_OUT = Metric(_SOCKETS, "outgoing-byte-total", COUNTER, "bytes of answers, also of those that wait to be sent")
QUEUED_BYTES = Metric(
    "SocketServer", "MemoryPoolUsed", GAUGE, "bytes of requests that are being read or are unanswered"
)
UNSENT_BYTES = Metric(KRAFTLOG, "UnsentResponseBytes", GAUGE, "bytes of answers that clients have not read yet")
PAUSED = Metric(
    KRAFTLOG, "PausedConnectionCount", GAUGE, "connections that are not read, since they are throttled or at a limit"
)
SLICES = Metric(KRAFTLOG, "RequestSlices", COUNTER, "how often a request was interrupted so that others continue")
UNWANTED = Metric(KRAFTLOG, "UnwantedResponses", COUNTER, "answers whose connection had been closed")

CATALOGUE: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order of this module."""
