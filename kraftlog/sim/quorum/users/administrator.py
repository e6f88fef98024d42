"""An administrator: creates and deletes topics, moves replicas, holds elections, fences brokers, one at a time.

Each topic it creates has the number of the operation as a config, so the log shows which operation created it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kraftbase.errors import ErrorCode
from kraftbase.types import NodeId
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.model.metadata import TOPIC
from kraftlog.sim.quorum.node.hardware import endpoint_of
from kraftlog.sim.quorum.observation.call import CREATED_BY, Call
from kraftlog.sim.quorum.users.rpc import RpcClient
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, BrokerIds, SupportedFeature
from statemachine.words.features import SUPPORTED

ADMINISTRATOR_ID: Final = 301
"""The administrator's place in the network."""

OPERATIONS_MAX: Final = 80
"""The maximum number of operations in one run."""


OVER_ANOTHER: Final = "a reassignment was asked for over another one"
"""The mark of a reassignment that replaces one in progress."""


class Administrator:
    """The administrator of a cluster."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        parameters = cluster.parameters.brokers
        if parameters is None:
            raise ValueError("this run has no brokers")
        self._cluster = cluster
        self._random = random
        self._parameters = parameters
        self._rpc = RpcClient(cluster, ADMINISTRATOR_ID, random, may_repeat=False)
        self._begun = 0
        self._is_stopped = False

    def start(self) -> None:
        """Schedule the next operation."""
        wait_ms = self._random.expovariate(1 / self._parameters.admin_interval_ms)
        self._cluster.event_queue.after(int(wait_ms * MICROSECONDS_PER_MS), self._act)

    def stop(self) -> None:
        """Begin no more operations."""
        self._is_stopped = True

    def _act(self) -> None:
        if self._is_stopped or self._begun >= OPERATIONS_MAX:
            return
        self._begun += 1
        topics = self._topics()
        kinds: list[Callable[[str], Operation]] = [
            self._reassign,
            self._elect,
            self._configure,
            self._grow,
            self._delete,
        ]
        draw = self._random.choice(kinds)
        if (len(topics) < self._parameters.topics_max and self._random.random() < 0.5) or not topics:
            operation = self._create()
        elif self._random.random() < 0.1:
            operation = self._on_brokers()
        elif (controller_id := self._unregistered()) is not None and self._random.random() < 0.3:
            operation = self._register(controller_id)
        else:
            operation = draw(self._random.choice(topics))
        self._rpc.call(operation, self._random.choice([1_000, 5_000]), self._answered)
        self.start()

    def _answered(self, call: Call, applied_end_offset: int) -> None:
        result = call.result
        if result is not None:
            kind = call.operation.WhichOneof("operation")
            self._cluster.marks.hit(f"{kind}: {ErrorCode(result.error_code).name}")

    def _topics(self) -> list[str]:
        """Return the topics that exist in the committed log."""
        return sorted(self._cluster.metadata.topics.values())

    def _broker_ids(self) -> list[int]:
        return [broker.broker_id for broker in self._cluster.brokers]

    # --- operations ---------------------------------------------------------------------------------------------------

    def _create(self) -> Operation:
        random = self._random
        configs = [
            admin_pb2.ConfigEntry(name=CREATED_BY, value=str(self._begun)),
            admin_pb2.ConfigEntry(name="min.insync.replicas", value=str(random.choice([1, 1, 2]))),
            admin_pb2.ConfigEntry(
                name="unclean.leader.election.enable", value=random.choice(["false", "false", "true"])
            ),
        ]
        if random.random() < 0.3:  # segments of the other topics are copied, too, as if they had once been tiered
            configs.append(admin_pb2.ConfigEntry(name="remote.storage.enable", value="true"))
        topic = admin_pb2.CreatableTopic(
            name=f"topic-{random.randrange(2 * self._parameters.topics_max)}",
            num_partitions=random.choice([1, 2, 5]),
            replication_factor=random.choice([1, 2, 3, 3]),
            configs=configs,
        )
        return Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))

    def _delete(self, topic: str) -> Operation:
        return Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicReference(name=topic)]))

    def _grow(self, topic: str) -> Operation:
        count = sum(self._cluster.metadata.topics.get(key[0]) == topic for key in self._cluster.metadata.partitions)
        more = admin_pb2.PartitionsOfTopic(name=topic, count=min(count + 1, 8))
        return Operation(create_partitions=admin_pb2.CreatePartitionsRequest(topics=[more]))

    def _reassign(self, topic: str) -> Operation:
        random, broker_ids, metadata = self._random, self._broker_ids(), self._cluster.metadata
        under_way = [key for key, found in sorted(metadata.partitions.items()) if found.adding or found.removing]
        if under_way and random.random() < 0.7:  # most reassignments wait for their leader and would never be replaced
            topic_id, partition_id = random.choice(under_way)
            topic, partition_ids = metadata.topics[topic_id], [partition_id]
            self._cluster.marks.hit(OVER_ANOTHER)
            if metadata.allows_unclean(topic_id):
                self._cluster.marks.hit(f"{OVER_ANOTHER}, with unclean elections on")
        else:
            partition_ids = list(range(random.choice([1, 2])))
        partitions = []
        for partition_id in partition_ids:
            target = random.sample(broker_ids, random.randint(1, min(3, len(broker_ids))))
            partitions.append(
                admin_pb2.PartitionReassignment(
                    topic=topic,
                    partition_id=partition_id,
                    replicas=None if random.random() < 0.2 else BrokerIds(ids=target),
                )
            )
        return Operation(
            alter_partition_reassignments=admin_pb2.AlterPartitionReassignmentsRequest(partitions=partitions)
        )

    def _elect(self, topic: str) -> Operation:
        kind = self._random.choice(
            [
                admin_pb2.ElectLeadersRequest.PREFERRED,
                admin_pb2.ElectLeadersRequest.PREFERRED,
                admin_pb2.ElectLeadersRequest.UNCLEAN,
            ]
        )
        return Operation(elect_leaders=admin_pb2.ElectLeadersRequest(election_type=kind))

    def _configure(self, topic: str) -> Operation:
        name, value = self._random.choice(
            [
                ("min.insync.replicas", "1"),
                ("min.insync.replicas", "2"),
                ("min.insync.replicas", None),
                ("unclean.leader.election.enable", "true"),
                ("unclean.leader.election.enable", "false"),
            ]
        )
        alteration = admin_pb2.ConfigAlteration(
            resource_type=TOPIC,
            resource_name=topic,
            name=name,
            kind=admin_pb2.ConfigAlteration.DELETE if value is None else admin_pb2.ConfigAlteration.SET,
            value=value or "",
        )
        return Operation(alter_configs=admin_pb2.AlterConfigsRequest(alterations=[alteration]))

    def _unregistered(self) -> NodeId | None:
        """Return a voter that has not registered as controller; None if all have.

        Features can be updated only when all have.
        """
        voter_ids = (voter.key.node_id for voter in self._cluster.voters.voters())
        return next((voter_id for voter_id in voter_ids if voter_id not in self._cluster.metadata.controllers), None)

    def _register(self, controller_id: NodeId) -> Operation:
        at = endpoint_of(controller_id)
        return Operation(
            register_controller=admin_pb2.RegisterControllerRequest(
                controller_id=controller_id,
                incarnation_id=self._random.randbytes(16),
                end_points=[BrokerEndpoint(name="CONTROLLER", host=at.host, port=at.port)],
                features=[
                    SupportedFeature(name=feature.name, min_level=feature.min_level, max_level=feature.max_level)
                    for feature in SUPPORTED
                ],
            )
        )

    def _on_brokers(self) -> Operation:
        random = self._random
        broker_id = random.choice(self._broker_ids())
        match random.randrange(3):
            case 0:
                return Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=broker_id))
            case 1:
                update = admin_pb2.FeatureUpdate(
                    name="eligible.leader.replicas.version",
                    level=random.randrange(2),
                    upgrade_type=random.choice(
                        [admin_pb2.FeatureUpdate.UPGRADE, admin_pb2.FeatureUpdate.SAFE_DOWNGRADE]
                    ),
                )
                return Operation(update_features=admin_pb2.UpdateFeaturesRequest(updates=[update]))
            case _:
                return Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=broker_id))
