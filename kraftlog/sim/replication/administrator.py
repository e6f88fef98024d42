"""An administrator: elections, reassignments, settings, topics that are deleted and created again, deleted records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kraftlog.kafka.notation import Message
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.replication.clients import ClientProcess
from kraftlog.sim.replication.metadata import Topic
from kraftlog.sim.replication.parameters import TopicParameters
from kraftlog.sim.replication.wire import CLIENTS
from kraftlog.sim.replication.world import World
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerIds
from statemachine.words.config_definitions import FLUSH_BEFORE_ACK, MIN_ISR
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

RETRY_US: Final = 400 * MICROSECONDS_PER_MS
BOTH_ENDS: Final = ("follower", "leader")
UNLIMITED: Final = 2**63 - 1
THROTTLED_US: Final = 5_000 * MICROSECONDS_PER_MS
DELETE_RECORDS_VERSION: Final = 2
ACTIONS: Final = (
    "elect preferred", "elect preferred", "elect uncleanly", "reassign", "reassign", "cancel", "min.insync.replicas",
    "delete topic", "delete records", "fence", "throttle", "throttle", "unregister",
)  # fmt: skip


Config = tuple[ResourceType, str, str, str]
"""The type and name of a resource, the name of a config, and its value."""


class Administrator:
    """The administrator of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.new_random()

    def create_all(self) -> None:
        """Create the topics."""
        for name, parameters in self._world.metadata.parameters.items():
            self._create(name, parameters)

    def start(self) -> None:
        """Schedule the next action."""
        mean_ms = self._world.parameters.administration_interval_ms
        self._world.event_queue.after(int(self._random.expovariate(1 / mean_ms) * MICROSECONDS_PER_MS), self._act)

    def _act(self) -> None:
        world, random = self._world, self._random
        if world.is_quiet:
            return
        names = sorted(world.metadata.topics)
        if names:
            topic = world.metadata.topics[random.choice(names)]
            index = random.choice(sorted(topic.partitions)) if topic.partitions else 0
            action = random.choice(ACTIONS)
            match action:
                case "elect preferred":
                    self.elect(topic.name, index)
                case "elect uncleanly":
                    if topic.parameters.has_unclean_elections:
                        self.elect(topic.name, index, is_unclean=True)
                case "reassign":
                    self._reassign_anywhere(topic, index)
                case "cancel":
                    self.reassign(topic.name, index, None)
                case "min.insync.replicas":
                    self.set_min_isr(topic, random.choice([1, 2]))
                case "delete topic":
                    if random.random() < 0.3:
                        self._make_anew(topic)
                case "delete records":
                    self._delete_records(topic, index)
                case "throttle":
                    self._throttle(topic)
                case "unregister":
                    request = admin_pb2.UnregisterBrokerRequest(broker_id=random.choice(sorted(world.machines)))
                    if random.random() < 0.2:
                        self._submit(admin_pb2.Operation(unregister_broker=request), action)
                case _:
                    broker_id = random.choice(sorted(world.machines))
                    self._submit(
                        admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=broker_id)), action
                    )
        self.start()

    def _submit(self, operation: admin_pb2.Operation, action: str) -> None:
        def answered(result: admin_pb2.OperationResult) -> None:
            self._world.marks.hit(f"{action}: {ErrorCode(result.error_code).name}")

        self._world.note(f"administrator: {action}")
        self._world.controller.submit(operation, answered)

    # --- topics -------------------------------------------------------------------------------------------------------

    def _create(self, name: str, parameters: TopicParameters) -> None:
        """Create a topic; try again until there are enough brokers."""
        configs = {
            FLUSH_BEFORE_ACK: "true" if parameters.flush_before_ack else "false",
            MIN_ISR: str(parameters.min_insync_replicas),
            "unclean.leader.election.enable": "true" if parameters.has_unclean_elections else "false",
        }
        topic = admin_pb2.CreatableTopic(
            name=name, num_partitions=parameters.partitions, replication_factor=parameters.replication_factor,
            configs=[admin_pb2.ConfigEntry(name=key, value=value) for key, value in configs.items()],
        )  # fmt: skip

        def answered(result: admin_pb2.OperationResult) -> None:
            if result.error_code or result.create_topics.topics[0].error_code:
                self._world.event_queue.after(RETRY_US, lambda: self._create(name, parameters))

        operation = admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))
        self._world.controller.submit(operation, answered)

    def _make_anew(self, topic: Topic) -> None:
        """Delete a topic, and create another one with its name, at once or later."""
        reference = admin_pb2.TopicReference(name=topic.name)
        self._submit(
            admin_pb2.Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=[reference])), "delete topic"
        )
        delay_us = self._random.choice([0, 50, 2_000]) * MICROSECONDS_PER_MS
        self._world.event_queue.after(delay_us, lambda: self._create(topic.name, topic.parameters))

    def set_min_isr(self, topic: Topic, count: int) -> None:
        """Change `min.insync.replicas` of a topic."""
        # From now on, records may be acknowledged with this few replicas in sync.
        topic.min_isr = count
        topic.lowest_min_isr = min(topic.lowest_min_isr, count)
        self._set([(ResourceType.TOPIC, topic.name, MIN_ISR, str(count))], MIN_ISR)

    def _throttle(self, topic: Topic) -> None:
        """Throttle the fetches of a topic's out-of-sync replicas for a while."""
        replicas = [(ResourceType.TOPIC, topic.name, f"{end}.replication.throttled.replicas", "*") for end in BOTH_ENDS]
        self._set([*replicas, *_rates(self._random.choice([200, 2_000]))], "throttle")
        self._world.event_queue.after(THROTTLED_US, self.end_throttles)

    def end_throttles(self) -> None:
        """Remove the throttles."""
        self._set(_rates(UNLIMITED), "end throttles")

    def _set(self, configs: Sequence[Config], action: str) -> None:
        alterations = [
            admin_pb2.ConfigAlteration(resource_type=kind, resource_name=resource, name=name, value=value)
            for kind, resource, name, value in configs
        ]
        request = admin_pb2.AlterConfigsRequest(alterations=alterations)
        self._submit(admin_pb2.Operation(alter_configs=request), action)

    # --- leaders and replicas -----------------------------------------------------------------------------------------

    def elect(self, topic: str, index: int, *, is_unclean: bool = False) -> None:
        """Request an election."""
        kinds = admin_pb2.ElectLeadersRequest.ElectionType
        references = [admin_pb2.PartitionReference(topic=topic, partition_id=index)]
        request = admin_pb2.ElectLeadersRequest(
            election_type=kinds.UNCLEAN if is_unclean else kinds.PREFERRED,
            partitions=admin_pb2.PartitionReferences(partitions=references),
        )
        self._submit(admin_pb2.Operation(elect_leaders=request), "elect uncleanly" if is_unclean else "elect preferred")

    def reassign(self, topic: str, index: int, replicas: Sequence[int] | None) -> None:
        """Request other replicas for a partition; None: cancel the reassignment."""
        wanted = admin_pb2.PartitionReassignment(topic=topic, partition_id=index)
        if replicas is not None:
            wanted.replicas.CopyFrom(BrokerIds(ids=replicas))
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[wanted])
        self._submit(
            admin_pb2.Operation(alter_partition_reassignments=request), "cancel" if replicas is None else "reassign"
        )

    def _reassign_anywhere(self, topic: Topic, index: int) -> None:
        factor = topic.parameters.replication_factor
        count = max(1, min(len(self._world.machines), factor + self._random.choice([-1, 0, 0, 0, 1])))
        self.reassign(topic.name, index, self._random.sample(sorted(self._world.machines), count))

    def change_leaders_fast(self) -> None:
        """Request several elections of other leaders for a partition in quick succession."""
        names = sorted(self._world.metadata.topics)
        if not names:
            return
        topic = self._world.metadata.topics[self._random.choice(names)]
        index = self._random.choice(sorted(topic.partitions)) if topic.partitions else 0
        delay_us = 0
        for _ in range(self._random.choice([2, 4, 7])):
            self._world.event_queue.after(delay_us, lambda: self._lead_by_another(topic, index))
            delay_us += self._random.choice([5, 30, 150]) * MICROSECONDS_PER_MS

    def _lead_by_another(self, topic: Topic, index: int) -> None:
        state = topic.partitions.get(index)
        if state is not None and not self._world.is_quiet:
            others = [broker_id for broker_id in state.isr if broker_id != state.leader]
            if others:
                first = self._random.choice(others)
                self.reassign(topic.name, index, [first, *(replica for replica in state.replicas if replica != first)])
                self.elect(topic.name, index)

    # --- records ------------------------------------------------------------------------------------------------------

    def _delete_records(self, topic: Topic, index: int) -> None:
        world = self._world
        checker = world.checker.partitions.get((topic.topic_id, index))
        if checker is None or checker.state.leader not in world.machines:
            return
        end = checker.promises.end
        offset = self._random.randint(min(checker.promises.deleted_below, end), end)
        checker.promises.deleted(offset)
        wanted = DeleteRecordsTopic(
            name=topic.name, partitions=(DeleteRecordsPartition(partition_index=index, offset=offset),)
        )
        body = DeleteRecordsRequest(topics=(wanted,), timeout_ms=1_000)

        def answered(response: Message | ApiError) -> None:
            if not isinstance(response, ApiError):
                code = cast(DeleteRecordsResponse, response).topics[0].partitions[0].error_code
                world.marks.hit(f"delete records: {ErrorCode(code).name}")

        world.note(f"administrator: delete records of {checker.name} below {offset}")
        world.wire.ask(ClientProcess(), CLIENTS, checker.state.leader, body, DELETE_RECORDS_VERSION, answered)


def _rates(bytes_per_second: int) -> list[Config]:
    return [
        (ResourceType.BROKER, CLUSTER_DEFAULT, f"{end}.replication.throttled.rate", str(bytes_per_second))
        for end in BOTH_ENDS
    ]
