"""The admin client: the address of any node is enough. It finds and follows the leader by itself.

    async with AdminClient([Endpoint("localhost", 9093)]) as client:
        await client.create_topics([NewTopic("clicks", num_partitions=3, replication_factor=2)])

- Changes go to the leader over one stream; the operations that are pending are sent as one message.
- An operation that was certainly not carried out (no leader, not the leader, not sent, throttled) is retried until the
  timeout, with jitter. An operation that may have been carried out is not: OutcomeUnknown reports it, and the caller
  checks before trying again.
- Reads are answered by the first of the given addresses that can be reached, from what that node has applied, at least
  up to what this client's acknowledged operations changed or found to be so already. `last_end_offset` is that offset:
  another client waits for it with `wait_for`.

A request about many things raises ApiError for the first refused one, by name; the others are carried out. Where each
partition has its own outcome, the outcomes are returned.
"""

from __future__ import annotations

from kraftlog.admin.client.access import AccessCalls
from kraftlog.admin.client.brokers import BrokerCalls
from kraftlog.admin.client.configs import ConfigCalls
from kraftlog.admin.client.core import TIMEOUT_MS_DEFAULT
from kraftlog.admin.client.features_and_quotas import FeatureCalls, QuotaCalls
from kraftlog.admin.client.node_reader import query
from kraftlog.admin.client.operation_stream import NotSent, OutcomeUnknown
from kraftlog.admin.client.partitions import PartitionCalls
from kraftlog.admin.client.topics import TopicCalls
from kraftpb.v1 import admin_pb2
from statemachine.query.conversions import query_answer_from_proto
from statemachine.query.descriptions import Alteration, BrokerListener, NewTopic, QueryAnswer

__all__ = ["TIMEOUT_MS_DEFAULT", "AdminClient", "Alteration", "BrokerListener", "NewTopic", "NotSent", "OutcomeUnknown"]


class AdminClient(TopicCalls, BrokerCalls, ConfigCalls, PartitionCalls, FeatureCalls, QuotaCalls, AccessCalls):
    """A client of one cluster, for one event loop. Use it as `async with AdminClient(...) as client`."""

    async def query(self, sql: str, *, min_applied_end_offset: int = 0) -> QueryAnswer:
        """Run one read-only SQL statement on a node's committed metadata: see docs/sql.md. Raises ApiError."""
        request = admin_pb2.QueryRequest(consistency=self._consistency(min_applied_end_offset), sql=sql)
        response = await self._reader.read(query, request, self._timeout_ms)
        return query_answer_from_proto(response)
