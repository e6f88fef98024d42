"""Sequences of administrative steps, drawn from a seed. Most are valid, and error-prone kinds are drawn more often.

The generator knows roughly which topics exist, which assignments it gave and which brokers it stopped. Only the systems
know whether a step is valid when it is carried out, and they must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kraftlog.difftest import steps
from kraftlog.difftest.odd_steps import OddSteps, log_dirs_of
from kraftlog.difftest.steps import NewTopic, Step

BROKERS: Final = (1, 2, 3, 4)
TOPICS: Final = ("alpha", "beta", "gamma")
STEPS: Final = 40
"""How many steps follow the start of the brokers."""

TOPIC_CONFIGS: Final = (
    ("min.insync.replicas", ("1", "2", "2", "3")),
    ("unclean.leader.election.enable", ("true", "false")),
    ("retention.ms", ("1000", "-1")),
    ("cleanup.policy", ("delete", "compact", "compact,delete")),
    ("max.message.bytes", ("1000",)),
)
FEATURE: Final = "eligible.leader.replicas.version"


def generate(seed: int, length: int = STEPS) -> list[Step]:
    """Return the sequence of a seed: the same each time."""
    return _Generator(Random(seed)).sequence(length)  # noqa: S311 (no secret)


class _Generator:
    """Draws one sequence, and keeps the state that the steps drawn so far lead to."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._assigned: dict[str, list[tuple[int, ...]]] = {}
        self._incarnations = dict.fromkeys(BROKERS, 0)
        self._stopped: dict[int, bool] = {}
        """The stopped brokers, and whether each was shut down cleanly."""
        self._fenced: set[int] = set()
        self._odd = OddSteps(random, BROKERS, TOPICS)

    def sequence(self, length: int) -> list[Step]:
        """Draw the start of the brokers, the creation of topics, and then steps of any kind."""
        found: list[Step] = []
        for broker_id in BROKERS:
            found += self._start(broker_id)
        found += self._create() + self._create()
        while len(found) < length + 2 * len(BROKERS):
            (draw,) = self._random.choices([draw for draw, _ in self._kinds()], [weight for _, weight in self._kinds()])
            found += draw()
        return found[: length + 2 * len(BROKERS)]

    def _kinds(self) -> list[tuple[Callable[[], list[Step]], int]]:
        return [
            (self._alter_isr, 26),
            (self._reassign, 12),
            (self._cancel, 4),
            (self._elect, 9),
            (self._lead_back, 2),
            (self._strand, 3),
            (self._fence, 6),
            (self._unfence, 8 if self._fenced else 0),
            (self._shut_down, 4),
            (self._return, 8 if self._stopped else 0),
            (self._crash, 2),
            (self._create, 4),
            (self._delete, 2),
            (self._grow, 3),
            (self._configure, 7),
            (self._configure_default, 2),
            (self._place, 1),
            (self._assign, 2),
            (self._update_feature, 1),
            (self._allocate, 1),
            (self._fail_directory, 1),
            (lambda: [self._odd.draw()], 14),
        ]

    # --- brokers --------------------------------------------------------------------------------------------------

    def _start(self, broker_id: int, is_clean: bool = False, is_late: bool = False) -> list[Step]:
        self._incarnations[broker_id] += 1
        self._stopped.pop(broker_id, None)
        self._fenced.discard(broker_id)
        log_dirs = log_dirs_of(broker_id, BROKERS)
        incarnation = self._incarnations[broker_id]
        register = steps.RegisterBroker(broker_id, incarnation, log_dirs, is_clean=is_clean, is_late=is_late)
        return [register, steps.Heartbeat(broker_id)]

    def _running(self) -> list[int]:
        return [broker_id for broker_id in BROKERS if broker_id not in self._stopped]

    def _fence(self) -> list[Step]:
        """Fence a broker. Mostly at most two brokers are away, so that the others can continue."""
        away = len(self._stopped) + len(self._fenced)
        running = [broker_id for broker_id in self._running() if broker_id not in self._fenced]
        if not running or (away >= 2 and self._random.random() < 0.8):
            return self._unfence()
        broker_id = self._random.choice(running)
        self._fenced.add(broker_id)
        return [steps.Heartbeat(broker_id, want_fence=True)]

    def _unfence(self) -> list[Step]:
        if not self._fenced:
            return []
        broker_id = self._random.choice(sorted(self._fenced))
        self._fenced.discard(broker_id)
        return [steps.Heartbeat(broker_id)]

    def _shut_down(self) -> list[Step]:
        running = self._running()
        if len(running) < 2:
            return []
        broker_id = self._random.choice(running)
        self._stopped[broker_id] = True
        self._fenced.discard(broker_id)
        return [steps.Heartbeat(broker_id, want_shut_down=True)]

    def _crash(self) -> list[Step]:
        running = self._running()
        if len(running) < 2:
            return []
        broker_id = self._random.choice(running)
        self._stopped[broker_id] = False
        self._fenced.discard(broker_id)
        return [steps.VanishBroker(broker_id)]

    def _return(self) -> list[Step]:
        if not self._stopped:
            return []
        broker_id, is_clean = self._random.choice(sorted(self._stopped.items()))
        return self._start(broker_id, is_clean, is_late=True)

    def _fail_directory(self) -> list[Step]:
        """Fail a directory, mostly the same one, so that the other is left."""
        broker_id = BROKERS[-1]
        if broker_id in self._stopped:
            return []
        return [steps.Heartbeat(broker_id, offline_log_dirs=(self._random.choice((1, 1, 1, 1, 1, 1, 2)),))]

    # --- topics ---------------------------------------------------------------------------------------------------

    def _replicas(self) -> tuple[int, ...]:
        count = self._random.choice((1, 2, 2, 3, 3, 3, 4))
        return tuple(self._random.sample(BROKERS, count))

    def _create(self) -> list[Step]:
        free = [name for name in TOPICS if name not in self._assigned]
        if not free:
            return self._delete() if self._random.random() < 0.2 else []
        count = self._random.choice((1, 2, 3))
        factor = len(self._replicas())
        assignments = [tuple(self._random.sample(BROKERS, factor)) for _ in range(count)]
        self._assigned[free[0]] = assignments
        configs = [
            (name, self._random.choice(values)) for name, values in TOPIC_CONFIGS[:2] if self._random.random() < 0.5
        ]
        topic = NewTopic(free[0], tuple(assignments), configs=tuple(configs))
        return [steps.CreateTopics((topic,), validate_only=False)]

    def _topic(self) -> str:
        return self._random.choice(sorted(self._assigned) or list(TOPICS))

    def _partition(self) -> tuple[str, int]:
        topic = self._topic()
        return topic, self._random.randrange(max(1, len(self._assigned.get(topic, ()))))

    def _delete(self) -> list[Step]:
        if len(self._assigned) < 2:
            return []
        topic = self._topic()
        self._assigned.pop(topic, None)
        return [steps.DeleteTopics((topic,))]

    def _grow(self) -> list[Step]:
        topic = self._topic()
        assigned = self._assigned.get(topic)
        if not assigned or len(assigned) > 4:
            return []
        replicas = tuple(self._random.sample(BROKERS, len(assigned[0])))
        assigned.append(replicas)
        return [steps.CreatePartitions(topic, len(assigned), (replicas,))]

    def _place(self) -> list[Step]:
        return [steps.PlaceTopic("placed", self._random.choice((1, 4, 6)), self._random.choice((1, 2, 3, 4, 5, -1)))]

    # --- partitions -----------------------------------------------------------------------------------------------

    def _alter_isr(self) -> list[Step]:
        topic, partition = self._partition()
        if self._random.random() < 0.4:
            return [steps.AlterPartition(topic, partition, meaning=steps.ALL)]
        some = tuple(self._random.sample(BROKERS, self._random.choice((1, 1, 2))))
        return [steps.AlterPartition(topic, partition, some, steps.TOGGLE)]

    def _reassign(self) -> list[Step]:
        topic, partition = self._partition()
        partitions: list[steps.Reassignment] = [(topic, partition, self._replicas())]
        if self._random.random() < 0.2 and len(self._assigned.get(topic, ())) > 1:
            partitions.append((topic, (partition + 1) % len(self._assigned[topic]), self._replicas()))
        return [steps.Reassign(tuple(partitions))]

    def _cancel(self) -> list[Step]:
        topic, partition = self._partition()
        return [steps.Reassign(((topic, partition, None),))]

    def _elect(self) -> list[Step]:
        election_type = self._random.choice((steps.PREFERRED, steps.PREFERRED, steps.UNCLEAN))
        if self._random.random() < 0.3:
            return [steps.ElectLeaders(election_type, None)]
        return [steps.ElectLeaders(election_type, (self._partition(),))]

    def _lead_back(self) -> list[Step]:
        """Fence a broker for a moment, bring it back into the ISR, and elect preferred leaders."""
        running = [broker_id for broker_id in self._running() if broker_id not in self._fenced]
        if not running or not self._assigned:
            return []
        broker_id, topic = self._random.choice(running), self._topic()
        away: list[Step] = [steps.Heartbeat(broker_id, want_fence=True), steps.Heartbeat(broker_id)]
        partitions = range(len(self._assigned[topic]))
        in_sync: list[Step] = [steps.AlterPartition(topic, number, meaning=steps.ALL) for number in partitions]
        return [*away, *in_sync, steps.ElectLeaders(steps.PREFERRED, self._random.choice((None, ((topic, 0),))))]

    def _strand(self) -> list[Step]:
        """Reduce an ISR to the leader and fence the leader. Then at most an unclean election can elect another."""
        topic, partition = self._partition()
        assigned = self._assigned.get(topic)
        if not assigned or assigned[partition][0] in self._stopped:
            return []
        leader = assigned[partition][0]
        self._fenced.add(leader)
        return [
            steps.AlterPartition(topic, partition, meaning=steps.ALONE),
            steps.Heartbeat(leader, want_fence=True),
            steps.ElectLeaders(self._random.choice((steps.UNCLEAN, steps.PREFERRED)), ((topic, partition),)),
        ]

    def _assign(self) -> list[Step]:
        broker_id = self._random.choice((BROKERS[-1], BROKERS[-1], 1))
        return [steps.AssignDirectories(broker_id, self._random.choice((1, 2)), (self._partition(),))]

    # --- configs and the rest -------------------------------------------------------------------------------------

    def _configure(self) -> list[Step]:
        name, values = self._random.choice(TOPIC_CONFIGS[:2] + TOPIC_CONFIGS)
        value = self._random.choice(values)
        change = (name, steps.DELETE, "") if self._random.random() < 0.3 else (name, steps.SET, value)
        return [steps.AlterConfigs(steps.TOPIC, self._topic(), (change,))]

    def _configure_default(self) -> list[Step]:
        name, value = self._random.choice(
            (("min.insync.replicas", "2"), ("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true"))
        )
        if name != "min.insync.replicas" and self._random.random() < 0.5:
            return [steps.AlterConfigs(steps.BROKER, "", ((name, steps.DELETE, ""),))]
        return [steps.AlterConfigs(steps.BROKER, "", ((name, steps.SET, value),))]

    def _update_feature(self) -> list[Step]:
        level = self._random.choice((0, 1))
        return [steps.UpdateFeature(FEATURE, level, self._random.choice((1, 2)))]

    def _allocate(self) -> list[Step]:
        return [steps.AllocateProducerIds(self._random.choice(BROKERS))]
