"""Steps that are mostly invalid, each in one way; and valid and invalid steps about neither brokers nor topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from kraftlog.difftest import steps
from kraftlog.difftest.steps import NewTopic, Step
from statemachine.words.features import METADATA_VERSION_LATEST

LONG_NAME: Final = "n" * 250
UNKNOWN_TOPIC: Final = "unknown"
UNKNOWN_BROKER: Final = 9

WRONG_TOPICS: Final = (
    NewTopic("", ((1,),)),
    NewTopic(".", ((1,),)),
    NewTopic("..", ((1,),)),
    NewTopic("a b", ((1,),)),
    NewTopic(LONG_NAME, ((1,),)),
    NewTopic("zero", (), 0, 1),
    NewTopic("negative", (), -2, 1),
    NewTopic("none", (), 1, 0),
    NewTopic("many", (), 1, 7),
    NewTopic("both", ((1,),), 1, 1),
    NewTopic("count", ((1,),), 1, -1),
    NewTopic("gap", ((1,), (2,)), first_partition=1),
    NewTopic("repeated", ((1, 1),)),
    NewTopic("stranger", ((1, UNKNOWN_BROKER),)),
    NewTopic("uneven", ((1,), (1, 2))),
    NewTopic("empty", ((),)),
    NewTopic("empty.second", ((1,), ())),
    NewTopic("config", ((1,),), configs=(("no.such.config", "1"),)),
    NewTopic("value", ((1,),), configs=(("retention.ms", "x"),)),
    NewTopic("isr", ((1,),), configs=(("min.insync.replicas", "0"),)),
    NewTopic("alpha", ((1,),)),
    NewTopic("al.pha_", ((1,),)),
    NewTopic("__cluster_metadata", ((1,),)),
)

WRONG_CONFIGS: Final = (
    (steps.TOPIC, UNKNOWN_TOPIC, "retention.ms", steps.SET, "1"),
    (steps.TOPIC, "", "retention.ms", steps.SET, "1"),
    (steps.TOPIC, "alpha", "no.such.config", steps.SET, "1"),
    (steps.TOPIC, "alpha", "no.such.config", steps.DELETE, ""),
    (steps.TOPIC, "alpha", "retention.ms", steps.SET, "x"),
    (steps.TOPIC, "alpha", "retention.ms", steps.SET, ""),
    (steps.TOPIC, "alpha", "min.insync.replicas", steps.SET, "0"),
    (steps.TOPIC, "alpha", "cleanup.policy", steps.SET, "burn"),
    (steps.TOPIC, "alpha", "cleanup.policy", steps.APPEND, "compact"),
    (steps.TOPIC, "alpha", "cleanup.policy", steps.SUBTRACT, "delete"),
    (steps.TOPIC, "alpha", "retention.ms", steps.APPEND, "1"),
    (steps.TOPIC, "alpha", "retention.ms", steps.DELETE, ""),
    (steps.BROKER, "1", "no.such.config", steps.SET, "1"),
    (steps.BROKER, "1", "log.cleaner.threads", steps.SET, "2"),
    (steps.BROKER, "1", "log.cleaner.threads", steps.DELETE, ""),
    (steps.BROKER, "1", "min.insync.replicas", steps.SET, "2"),
    (steps.BROKER, "", "min.insync.replicas", steps.DELETE, ""),
    (steps.BROKER, "", "log.cleaner.threads", steps.SET, "2"),
    (steps.BROKER, "x", "log.cleaner.threads", steps.SET, "2"),
    (steps.BROKER, "77", "log.cleaner.threads", steps.SET, "2"),
    (1, "alpha", "retention.ms", steps.SET, "1"),
)

QUOTAS: Final = (
    ((("user", "u"),), (("producer_byte_rate", 1024.0),)),
    ((("user", "u"),), (("producer_byte_rate", None),)),
    ((("user", "u"),), (("producer_byte_rate", 1024.0), ("consumer_byte_rate", 2048.0))),
    ((("user", None),), (("request_percentage", 50.0),)),
    ((("client-id", "c"), ("user", "u")), (("controller_mutation_rate", 1000000.0),)),
    ((("client-id", None),), (("consumer_byte_rate", 10.0),)),
    ((("ip", "127.0.0.1"),), (("connection_creation_rate", 5.0),)),
    ((("ip", None),), (("connection_creation_rate", 5.0),)),
    ((("ip", "127.0.0.1"),), (("producer_byte_rate", 5.0),)),
    ((("ip", "127.0.0.1"), ("user", "u")), (("connection_creation_rate", 5.0),)),
    ((("user", "u"),), (("no_such_quota", 5.0),)),
    ((("user", "u"),), (("producer_byte_rate", -1.0),)),
    ((("user", "u"),), (("producer_byte_rate", 0.0),)),
    ((("user", "u"),), (("producer_byte_rate", 1.5),)),
    ((("user", "u"),), (("no_such_quota", None),)),
    ((("user", ""),), (("producer_byte_rate", 5.0),)),
    ((("planet", "earth"),), (("producer_byte_rate", 5.0),)),
    ((), (("producer_byte_rate", 5.0),)),
    ((("user", "nobody"),), (("producer_byte_rate", None),)),
)

ACLS: Final = (
    steps.Acl(2, "alpha", 3, "User:a", "*", 3, 3),
    steps.Acl(2, "al", 4, "User:a", "*", 4, 3),
    steps.Acl(2, "*", 3, "User:*", "10.0.0.1", 2, 2),
    steps.Acl(4, "kafka-cluster", 3, "User:b", "*", 12, 3),
    steps.Acl(3, "group", 3, "User:b", "*", 3, 3),
    steps.Acl(2, "alpha", 3, "a", "*", 3, 3),
    steps.Acl(2, "alpha", 3, "", "*", 3, 3),
    steps.Acl(2, "", 3, "User:a", "*", 3, 3),
    steps.Acl(4, "other", 3, "User:a", "*", 3, 3),
)

ACLS_OF_ANY: Final = (
    steps.Acl(2, "alpha", 3, "User:a", "*", 1, 3),
    steps.Acl(1, "alpha", 3, "User:a", "*", 3, 3),
    steps.Acl(2, "alpha", 1, "User:a", "*", 3, 3),
    steps.Acl(2, "alpha", 3, "User:a", "*", 3, 1),
)
"""Entries with ANY. In Kafka a request with one of them fails as a whole; with UNKNOWN, Kafka closes the connection."""

FILTERS: Final = (
    steps.AclFilter(1, None, 1, None, None, 1, 1),
    steps.AclFilter(2, None, 1, None, None, 1, 1),
    steps.AclFilter(2, "alpha", 2, None, None, 1, 1),
    steps.AclFilter(2, "alpha", 3, None, None, 1, 1),
    steps.AclFilter(2, "al", 4, None, None, 1, 1),
    steps.AclFilter(1, None, 1, "User:a", None, 1, 1),
    steps.AclFilter(1, None, 1, None, "10.0.0.1", 1, 1),
    steps.AclFilter(1, None, 1, None, None, 3, 1),
    steps.AclFilter(1, None, 1, None, None, 1, 2),
    steps.AclFilter(2, "nothing", 3, None, None, 1, 1),
)

FEATURES: Final = (
    ("metadata.version", METADATA_VERSION_LATEST, 1),
    ("metadata.version", 28, 1),
    ("metadata.version", 28, 3),
    ("metadata.version", 6, 2),
    ("metadata.version", 1000, 1),
    ("metadata.version", 0, 2),
    ("eligible.leader.replicas.version", 1, 1),
    ("eligible.leader.replicas.version", 2, 1),
    ("eligible.leader.replicas.version", 0, 1),
    ("eligible.leader.replicas.version", -1, 1),
    ("no.such.feature", 1, 1),
    ("eligible.leader.replicas.version", 1, 0),
)


def log_dirs_of(broker_id: int, brokers: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of a broker's log directories: the last broker has two."""
    return (1, 2) if broker_id == brokers[-1] else (1,)


class OddSteps:
    """Draws one odd step at a time."""

    def __init__(self, random: Random, brokers: Sequence[int], topics: Sequence[str]) -> None:
        self._random = random
        self._brokers = brokers
        self._topics = topics

    def draw(self) -> Step:
        """Draw one step."""
        kinds: list[Callable[[], Step]] = [
            self._create, self._configs, self._quotas, self._create_acls, self._delete_acls, self._features,
            *(self._alter_partition,) * 5, self._reassign, self._elect, self._grow, self._register,
            self._heartbeat, self._directories, self._deletion, self._allocate, self._unregister,
        ]  # fmt: skip
        return self._random.choice(kinds)()

    def _create(self) -> Step:
        topics: tuple[NewTopic, ...] = (self._random.choice(WRONG_TOPICS),)
        if self._random.random() < 0.1:
            topics += (topics[0],)
        return steps.CreateTopics(topics, validate_only=self._random.random() < 0.2)

    def _configs(self) -> Step:
        resource_type, resource_name, name, operation, value = self._random.choice(WRONG_CONFIGS)
        changes: tuple[tuple[str, int, str], ...] = ((name, operation, value),)
        if self._random.random() < 0.1:
            changes += (("max.message.bytes", steps.SET, "2000"),)
        return steps.AlterConfigs(resource_type, resource_name, changes, self._random.random() < 0.15)

    def _quotas(self) -> Step:
        entity, changes = self._random.choice(QUOTAS)
        return steps.AlterQuotas(entity, changes, self._random.random() < 0.1)

    def _create_acls(self) -> Step:
        if self._random.random() < 0.2:
            return steps.CreateAcls((self._random.choice(ACLS_OF_ANY),))
        return steps.CreateAcls(tuple(self._random.sample(ACLS, self._random.choice((1, 1, 2, 3)))))

    def _delete_acls(self) -> Step:
        return steps.DeleteAcls(tuple(self._random.sample(FILTERS, self._random.choice((1, 1, 2)))))

    def _features(self) -> Step:
        return steps.UpdateFeature(*self._random.choice(FEATURES), validate_only=self._random.random() < 0.2)

    def _alter_partition(self) -> Step:
        random = self._random
        topic = random.choice((*self._topics, *self._topics, UNKNOWN_TOPIC))
        some = tuple(random.sample(self._brokers, 2))
        changes = random.choice(
            (
                {"broker_epoch_change": -1}, {"broker_epoch_change": 1}, {"leader_epoch_change": -1},
                {"leader_epoch_change": 1}, {"partition_epoch_change": -1}, {"partition_epoch_change": 1},
                {"recovery_state": 1}, {"member_epoch_change": None},
                {"member_epoch_change": -1}, {"member_epoch_change": 1}, {"sender": random.choice(self._brokers)},
                {"sender": UNKNOWN_BROKER},
            )
        )  # fmt: skip
        match random.randrange(9):
            case 0:
                return steps.AlterPartition(topic, 0, (some[0], some[0]))
            case 1:
                return steps.AlterPartition(topic, 0, ())
            case 2:
                return steps.AlterPartition(topic, 99, some)
            case 3:
                return steps.AlterPartition(topic, 0, some)
            case _:
                return steps.AlterPartition(topic, 0, meaning=random.choice((steps.ALL, steps.ALONE)), **changes)

    def _reassign(self) -> Step:
        topic = self._random.choice(self._topics)
        wrong: tuple[steps.Reassignment, ...] = (
            (topic, 0, ()), (topic, 0, (1, 1)), (topic, 0, (1, UNKNOWN_BROKER)), (topic, 99, (1, 2)),
            (topic, 99, None), (UNKNOWN_TOPIC, 0, (1,)), (topic, 0, (-1, 1)), (topic, -1, (1,)),
        )  # fmt: skip
        return steps.Reassign((self._random.choice(wrong),))

    def _elect(self) -> Step:
        wrong = ((UNKNOWN_TOPIC, 0), (self._random.choice(self._topics), 99), ("", 0))
        return steps.ElectLeaders(self._random.choice((0, 1, 1)), (self._random.choice(wrong),))

    def _grow(self) -> Step:
        topic = self._random.choice((*self._topics, UNKNOWN_TOPIC))
        wrong = (
            (topic, 1, ()), (topic, 0, ()), (topic, -1, ()), (topic, 9, ((1, 2),)), (topic, 6, ((1, 1),)),
            (topic, 7, ((),)), (topic, 8, ((UNKNOWN_BROKER, 1),)),
        )  # fmt: skip
        name, count, assignments = self._random.choice(wrong)
        return steps.CreatePartitions(name, count, assignments, self._random.random() < 0.2)

    def _register(self) -> Step:
        broker_id = self._random.choice(self._brokers)
        log_dirs = log_dirs_of(broker_id, self._brokers)
        return self._random.choice(
            (
                steps.RegisterBroker(broker_id, 90, log_dirs),
                steps.RegisterBroker(broker_id, 1, log_dirs),
                steps.RegisterBroker(UNKNOWN_BROKER, 1, ()),
                steps.RegisterBroker(UNKNOWN_BROKER, 1, (0,)),
                steps.RegisterBroker(UNKNOWN_BROKER, 1, (1, 1)),
                steps.RegisterBroker(UNKNOWN_BROKER, 1, is_stranger=True),
                steps.RegisterBroker(UNKNOWN_BROKER, 1, rack="a"),
                steps.RegisterBroker(-1, 1),
            )
        )

    def _heartbeat(self) -> Step:
        broker_id = self._random.choice(self._brokers)
        return self._random.choice(
            (
                steps.Heartbeat(broker_id, epoch_change=-1),
                steps.Heartbeat(broker_id, epoch_change=1),
                steps.Heartbeat(UNKNOWN_BROKER),
                steps.Heartbeat(broker_id, is_caught_up=False),
                steps.Heartbeat(broker_id, want_fence=True, want_shut_down=True),
            )
        )

    def _directories(self) -> Step:
        broker_id = self._random.choice(self._brokers)
        topic = self._random.choice((*self._topics, UNKNOWN_TOPIC))
        return self._random.choice(
            (
                steps.AssignDirectories(broker_id, 7, ((topic, 0),)),
                steps.AssignDirectories(broker_id, 0, ((topic, 0),)),
                steps.AssignDirectories(broker_id, 1, ((topic, 99),)),
                steps.AssignDirectories(broker_id, 1, ((topic, 0),), epoch_change=-1),
                steps.AssignDirectories(UNKNOWN_BROKER, 1, ((topic, 0),)),
            )
        )

    def _deletion(self) -> Step:
        return steps.DeleteTopics(self._random.choice(((UNKNOWN_TOPIC,), ("",), (UNKNOWN_TOPIC, UNKNOWN_TOPIC))))

    def _allocate(self) -> Step:
        broker_id = self._random.choice((self._brokers[0], UNKNOWN_BROKER))
        return steps.AllocateProducerIds(broker_id, self._random.choice((0, -1, 1)))

    def _unregister(self) -> Step:
        return steps.UnregisterBroker(self._random.choice((UNKNOWN_BROKER, UNKNOWN_BROKER, *self._brokers)))
