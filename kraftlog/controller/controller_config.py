"""The controller's settings: Kafka's keys and defaults where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.controller.operations.topics import CreateTopicPolicy
from kraftlog.controller.rules.quota import MutationQuotas


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The settings of a controller. Raises ValueError for values that are not allowed."""

    broker_session_timeout_ms: int = 9_000
    """broker.session.timeout.ms: a broker that sends no heartbeat for this long is fenced (CT-30)."""
    broker_fence_by_evidence_enable: bool = True
    """broker.fence.by.evidence.enable: whether a broker is fenced earlier when its process has ended (CT-65)."""
    leader_imbalance_check_interval_seconds: int = 300
    """leader.imbalance.check.interval.seconds: how often leadership returns to the preferred replicas (CT-19)."""
    auto_leader_rebalance_enable: bool = True
    """auto.leader.rebalance.enable: whether leadership returns to the preferred replicas."""
    unclean_election_check_interval_ms: int = 300_000
    """unclean.leader.election.interval.ms: how often partitions without a leader get an unclean one where allowed."""
    metadata_max_idle_interval_ms: int = 0
    """metadata.max.idle.interval.ms: a NoOp is appended after this long without records; 0: never (Kafka: 500)."""
    delete_topic_enable: bool = True
    """delete.topic.enable."""
    remote_log_storage_system_enable: bool = False
    """remote.log.storage.system.enable: whether topics may become tiered (TS-81)."""
    create_topic_policy: CreateTopicPolicy | None = None
    """create.topic.policy.class.name: the policy that new topics must pass. None: all are allowed."""
    controller_mutation_rate: float | None = None
    """controller.mutation.rate: how many partitions a second each client may create and delete (CT-20). None: any."""
    controller_mutation_burst: float | None = None
    """controller.mutation.burst: how many partitions at once, after an idle time. None: 11 seconds of the rate."""

    def __post_init__(self) -> None:
        least = {
            "broker_session_timeout_ms": 1,
            "leader_imbalance_check_interval_seconds": 1,
            "unclean_election_check_interval_ms": 1,
            "metadata_max_idle_interval_ms": 0,
        }
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {minimum}")
        MutationQuotas(self.controller_mutation_rate, self.controller_mutation_burst)  # raises ValueError
