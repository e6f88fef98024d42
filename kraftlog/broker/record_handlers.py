"""The handlers of what reads and writes records: those that every broker has, also in the simulator."""

from __future__ import annotations

from collections.abc import Mapping

from kraftbase.runtime import Runtime
from kraftlog.broker.apis.delete_records import DeleteRecordsApi
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.offsets import ListOffsetsApi, OffsetForLeaderEpochApi
from kraftlog.broker.apis.produce import ProduceApi
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.network.requests import Handler
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.replicas.partitions.sent_to_followers import SentToFollowers
from kraftlog.telemetry.observer import BrokerObserver


def record_handlers(
    lookup: PartitionLookup,
    runtime: Runtime,
    usage: QuotaUsage,
    *,
    sessions: FetchSessionCache,
    observer: BrokerObserver,
    choice: RackAwareChoice | None,
    throttle: SentToFollowers | None,
) -> Mapping[str, Handler]:
    """By the names of their APIs. `choice` sends consumers to replicas in their racks, None: to leaders. `throttle`
    is for what followers fetch, None: they fetch as fast as they can."""
    return {
        "Produce": ProduceApi(lookup, runtime, usage).handle,
        "Fetch": FetchApi(lookup, runtime, sessions, usage, observer, choice, throttle).handle,
        "ListOffsets": ListOffsetsApi(lookup).handle,
        "DeleteRecords": DeleteRecordsApi(lookup, runtime).handle,
        "OffsetForLeaderEpoch": OffsetForLeaderEpochApi(lookup).handle,
    }
