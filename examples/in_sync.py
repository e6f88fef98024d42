"""Say in the leaders' place that every replica on an active broker is in sync.

    python -m examples.in_sync localhost:9092

A leader says so when a follower has caught up (AlterPartition, KIP-497). Our brokers do not replicate yet, and no
leader says it: run this to bring back replicas that have left an ISR, and to complete reassignments. Do not run it
where topics with several replicas have records: the replicas that it declares in sync lack them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from kraftlog import AdminClient, ApiError, Endpoint, ErrorCode, parse_endpoint
from kraftlog.admin.client.partition_client import alter_partition
from kraftlog.commands.clients import committed_end_offset
from statemachine.query.descriptions import BrokerDescription, TopicDescription
from statemachine.query.partition_descriptions import IsrAlteration, IsrBroker


def alterations(
    topics: tuple[TopicDescription, ...], leader: int, active: dict[int, BrokerDescription]
) -> Iterator[IsrAlteration]:
    """What the broker `leader` has to say: one alteration for each partition whose ISR lacks an active replica."""
    for topic in topics:
        for partition in topic.partitions:
            in_sync = [broker_id for broker_id in partition.replicas if broker_id in active]
            if partition.leader == leader and not set(in_sync) <= set(partition.isr):
                yield IsrAlteration(
                    topic.topic_id,
                    partition.partition_id,
                    partition.leader_epoch,
                    partition.partition_epoch,
                    tuple(IsrBroker(broker_id, active[broker_id].broker_epoch) for broker_id in in_sync),
                )


async def bring_in_sync(addresses: list[Endpoint]) -> int:
    """Say it for all partitions that have a leader; how many ISRs have grown. Raises ApiError if one could not."""
    offset = await committed_end_offset(addresses)
    async with AdminClient(addresses) as client:
        brokers = (await client.list_brokers(min_applied_end_offset=offset)).brokers
        topics = (await client.describe_topics(min_applied_end_offset=offset)).topics
        active = {
            broker.broker_id: broker for broker in brokers if not (broker.fenced or broker.in_controlled_shutdown)
        }
        grown = 0
        for leader, broker in active.items():
            wanted = list(alterations(topics, leader, active))
            for outcome in await alter_partition(client, leader, broker.broker_epoch, wanted) if wanted else ():
                # The latter: that ended a reassignment, and it was the old leader's last word.
                if outcome.code not in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
                    raise ApiError(outcome.code, outcome.message)
                grown += 1
        return grown


def main() -> None:
    """Do it once, and say for how many partitions."""
    if len(sys.argv) != 2:
        print("usage: python -m examples.in_sync HOST:PORT[,HOST:PORT]", file=sys.stderr)
        sys.exit(2)
    grown = asyncio.run(bring_in_sync([parse_endpoint(text) for text in sys.argv[1].split(",")]))
    print(f"{grown} partitions have all their active replicas in sync now.")


if __name__ == "__main__":
    main()
