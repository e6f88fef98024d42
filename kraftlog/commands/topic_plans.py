"""Make a plan from the topics of a file and those of a live cluster, and execute it. Nothing is changed before every
part of the plan was validated: changes that are never possible (fewer partitions, another replication factor) are
refused here, the others are validated by the controller. Many topics are split into operations well below the limit of
one batch. Each run makes a new plan, without the changes of earlier runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeVar

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NotSent, OutcomeUnknown
from kraftlog.admin.client.connection import describe_any
from kraftlog.commands.clients import allowed_ms, committed_end_offset, connected_client
from kraftlog.commands.topic_files import WantedTopic
from statemachine.query.cluster_descriptions import ConfigChange, ConfigChangeKind
from statemachine.query.descriptions import NewTopic, TopicDescription, TopicListing
from statemachine.words.config_definitions import MIN_ISR, NUM_PARTITIONS
from statemachine.words.names import quoted
from statemachine.words.resources import CLUSTER_DEFAULT, FROM_DEFAULT, ResourceType

RECORDS_PER_OPERATION_MAX: Final = 5_000
"""Half of what one batch holds (CT-12), so that other clients do not wait for long."""

BYTES_PER_OPERATION_MAX: Final = 1024 * 1024
"""Of names and values, in total."""

OPERATION_TIMEOUT_MS: Final = 60_000
"""How long one of these operations may take: it is answered when it is committed, after all earlier operations."""

TOPICS_PER_READ_MAX: Final = 500
REFUSALS_SHOWN_MAX: Final = 10


INTERNAL_PREFIX: Final = "__"
"""Topics with such names are Kafka's own and are never pruned."""

COLUMNS: Final = ("Topic", "Action", "Name", "Present", "Wanted")

_ANOTHER_RUN_HELPS: Final = (
    # The cluster cannot make the change now.
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    # Another client created, deleted or grew a topic since the plan was made: the next plan accounts for that.
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PARTITIONS,
)

Progress = Callable[[int, int], None]
"""Called with the changes made so far, and all of them."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change of one topic, as the plan shows it."""

    topic: str
    action: str
    name: str = ""
    """Which property."""
    present: str = ""
    wanted: str = ""

    def row(self) -> dict[str, str]:
        """One line of the plan, with `COLUMNS`."""
        values = (self.topic, self.action, self.name, self.present, self.wanted)
        return dict(zip(COLUMNS, values, strict=True))


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The changes to make, without topics that already match."""

    shown: list[PlannedChange] = field(default_factory=list)
    """All changes, by topic in the order of the file; deletions are last."""
    creations: list[NewTopic] = field(default_factory=list)
    growths: dict[str, int] = field(default_factory=dict)
    """How many partitions are wanted, by topic."""
    configs: list[ConfigChange] = field(default_factory=list)
    deletions: list[str] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)
    """How many partitions each topic has, or will have when it is created."""

    def rows(self) -> list[dict[str, str]]:
        """One row per change."""
        return [change.row() for change in self.shown]


# --- the plan ---------------------------------------------------------------------------------------------------------


def make_plan(
    wanted: Sequence[WantedTopic],
    present: Mapping[str, TopicDescription],
    listed: Iterable[TopicListing] = (),
    *,
    partitions_default: int = 1,
    prune: bool = False,
) -> TopicPlan:
    """The changes that make the topics match the file. `present` has the wanted topics that exist; `listed` are all
    topics, of which `prune` deletes those not wanted. Raises ApiError that names every topic that cannot be made to
    match, ConfigurationError if `prune` would delete all.
    """
    if prune and not wanted:
        raise ConfigurationError("the file names no topic: --prune would delete all; name those to keep")
    plan = TopicPlan()
    refusals: list[ApiError] = []
    for topic in wanted:
        found = present.get(topic.name)
        if not topic.is_managed:
            continue
        if found is None:
            _plan_creation(plan, topic, partitions_default)
            continue
        try:
            _plan_changes(plan, topic, found)
        except ApiError as error:
            refusals.append(error)
    _raise_together(refusals)
    if prune:
        names = {topic.name for topic in wanted}
        for there in listed:
            if there.name not in names and not there.name.startswith(INTERNAL_PREFIX):
                plan.deletions.append(there.name)
                plan.partitions[there.name] = there.num_partitions
                plan.shown.append(PlannedChange(there.name, "delete", present=f"{there.num_partitions} partitions"))
    return plan


def _plan_creation(plan: TopicPlan, topic: WantedTopic, partitions_default: int) -> None:
    new = NewTopic(
        topic.name,
        num_partitions=FROM_DEFAULT if topic.num_partitions is None else topic.num_partitions,
        replication_factor=FROM_DEFAULT if topic.replication_factor is None else topic.replication_factor,
        configs=topic.configs or {},
    )
    plan.creations.append(new)
    plan.partitions[topic.name] = topic.num_partitions or partitions_default
    properties = {"partitions": topic.num_partitions, "replication factor": topic.replication_factor}
    described = [f"{name} {'by default' if value is None else value}" for name, value in properties.items()]
    described += [f"{name}={value}" for name, value in new.configs.items()]
    plan.shown.append(PlannedChange(topic.name, "create", wanted=", ".join(described)))


def _plan_changes(plan: TopicPlan, topic: WantedTopic, found: TopicDescription) -> None:
    count = len(found.partitions)
    plan.partitions[topic.name] = count
    if topic.num_partitions is not None and topic.num_partitions < count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.place}, topic {quoted(topic.name)}: it has {count} partitions, and {topic.num_partitions} are"
            f" wanted, but partitions cannot be removed; write {count} or more",
        )
    factor = _replication_factor(found)
    if topic.replication_factor not in (None, factor):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{topic.place}, topic {quoted(topic.name)}: its replication factor is {factor}, and"
            f" {topic.replication_factor} is wanted; write {factor}, or reassign its partitions with kraftlog reassign",
        )
    if topic.num_partitions is not None and topic.num_partitions > count:
        plan.growths[topic.name] = topic.num_partitions
        plan.shown.append(
            PlannedChange(topic.name, "add partitions", "partitions", str(count), str(topic.num_partitions))
        )
    if topic.configs is not None:
        _plan_configs(plan, topic.name, topic.configs, {config.name: config.value for config in found.configs})


def _plan_configs(plan: TopicPlan, topic: str, wanted: Mapping[str, str], present: Mapping[str, str]) -> None:
    for name, value in wanted.items():
        if present.get(name) != value:
            plan.configs.append(ConfigChange(ResourceType.TOPIC, topic, name, ConfigChangeKind.SET, value))
            plan.shown.append(PlannedChange(topic, "set config", name, present.get(name, ""), value))
    for name in present.keys() - wanted.keys():
        plan.configs.append(ConfigChange(ResourceType.TOPIC, topic, name, ConfigChangeKind.DELETE))
        plan.shown.append(PlannedChange(topic, "remove config", name, present[name]))


def _replication_factor(topic: TopicDescription) -> int:
    """That of the first partition, without the replicas that a reassignment removes."""
    if not topic.partitions:
        return 0
    first = topic.partitions[0]
    return len(set(first.replicas) - set(first.removing_replicas))


def _raise_together(refusals: Sequence[ApiError]) -> None:
    if refusals:
        shown = "; ".join(error.args[0] for error in refusals[:REFUSALS_SHOWN_MAX])
        more = len(refusals) - REFUSALS_SHOWN_MAX
        raise ApiError(refusals[0].code, shown + (f"; and {more} more topics" if more > 0 else ""))


# --- on a cluster -----------------------------------------------------------------------------------------------------


async def topic_plan(endpoints: Sequence[Endpoint], wanted: Sequence[WantedTopic], *, prune: bool) -> TopicPlan:
    """The changes that make the topics match the file. Raises as `plan_on` does."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        return await plan_on(client, wanted, prune=prune, min_applied_end_offset=offset)


async def execute_plan(endpoints: Sequence[Endpoint], plan: TopicPlan, progress: Progress) -> None:
    """Execute the plan. Raises ApiError that says how many changes were made."""
    await describe_any(endpoints)  # a wrong address is reported at once
    async with AdminClient(endpoints, timeout_ms=allowed_ms(OPERATION_TIMEOUT_MS)) as client:
        await apply_plan(client, plan, progress)


async def plan_on(
    client: AdminClient, wanted: Sequence[WantedTopic], *, prune: bool = False, min_applied_end_offset: int = 0
) -> TopicPlan:
    """The plan for a live cluster, every part of it validated by the controller. Nothing is changed.

    Raises ApiError and ConfigurationError as `make_plan` does, and ApiError for changes that the controller refuses.
    """
    listed = (await client.list_topics(min_applied_end_offset=min_applied_end_offset)).topics
    by_name = {topic.name: topic for topic in listed}
    existing = [by_name[topic.name] for topic in wanted if topic.is_managed and topic.name in by_name]
    present: dict[str, TopicDescription] = {}
    for batch in batches(existing, lambda topic: 1 + topic.num_partitions, len_max=TOPICS_PER_READ_MAX):
        described = await client.describe_topics(
            [topic.name for topic in batch], min_applied_end_offset=min_applied_end_offset
        )
        present |= {topic.name: topic for topic in described.topics}
    defaults = await client.describe_sourced_configs(ResourceType.BROKER, CLUSTER_DEFAULT)
    partitions_default = next((int(of.value) for of in defaults.configs if of.name == NUM_PARTITIONS), 1)
    plan = make_plan(wanted, present, listed, partitions_default=partitions_default, prune=prune)
    if plan.deletions:
        await _check_deletion(client, plan.deletions)
    await _execute_plan(client, plan, lambda made, of: None, validate_only=True)
    return plan


async def _check_deletion(client: AdminClient, names: Sequence[str]) -> None:
    """Raise ApiError if topics cannot be deleted here.

    A deletion cannot be validated only: an older leader would not know the flag, and would delete. But a controller
    that refuses deletions also refuses a request that names no topic.
    """
    try:
        await client.delete_topics([])
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_DELETION_DISABLED:
            raise
        raise ApiError(
            error.code,
            f"--prune would delete {len(names)} topics, such as {quoted(names[0])}, and none can be deleted here; leave"
            " it out, or set delete.topic.enable=true in the voters' files",
        ) from None


async def apply_plan(client: AdminClient, plan: TopicPlan, progress: Progress) -> None:
    """Execute the plan: creations first, deletions last. Raises ApiError that says how many changes were made."""
    await _execute_plan(client, plan, progress, validate_only=False)


async def _execute_plan(client: AdminClient, plan: TopicPlan, progress: Progress, *, validate_only: bool) -> None:
    made = 0
    total = len(plan.creations) + len(plan.growths) + len(plan.configs) + len(plan.deletions)
    progress(made, total)
    try:
        for created in batches(plan.creations, lambda topic: _creation_records(plan, topic), _creation_bytes):
            await client.create_topics(created, validate_only=validate_only)
            made += len(created)
            progress(made, total)
        for grown in batches(plan.growths.items(), lambda growth: growth[1] - plan.partitions[growth[0]]):
            await client.grow_topics(dict(grown), validate_only=validate_only)
            made += len(grown)
            progress(made, total)
        by_topic = [list(changes) for _, changes in groupby(plan.configs, lambda change: change.resource_name)]
        for altered in batches(by_topic, lambda changes: _config_records(plan, changes), _config_bytes):
            changes = [change for of_topic in altered for change in of_topic]
            await client.alter_configs(changes, validate_only=validate_only)
            made += len(changes)
            progress(made, total)
        if not validate_only:
            for deleted in batches(plan.deletions, lambda name: 1 + plan.partitions[name]):
                await client.delete_topics(deleted)
                made += len(deleted)
                progress(made, total)
    except ApiError as error:
        if validate_only:
            raise
        can_help = isinstance(error, NotSent | OutcomeUnknown) or error.code in _ANOTHER_RUN_HELPS
        again = "; run it again for the rest" if can_help else ""
        raise type(error)(error.code, f"{error.args[0]} ({made} of {total} changes are made{again})") from None


def _creation_records(plan: TopicPlan, topic: NewTopic) -> int:
    return 1 + len(topic.configs) + plan.partitions[topic.name]


def _creation_bytes(topic: NewTopic) -> int:
    return len(topic.name) + sum(len(name) + len(value) for name, value in topic.configs.items())


def _config_records(plan: TopicPlan, changes: Sequence[ConfigChange]) -> int:
    # Another min.insync.replicas resets the eligible leaders: a record for each partition (KIP-966).
    forgets = any(change.name == MIN_ISR for change in changes)
    return len(changes) + (plan.partitions[changes[0].resource_name] if forgets else 0)


def _config_bytes(changes: Sequence[ConfigChange]) -> int:
    return sum(len(change.name) + len(change.value) for change in changes)


def batches(
    items: Iterable[Item],
    records: Callable[[Item], int],
    bytes_of: Callable[[Item], int] = lambda item: 0,
    *,
    len_max: int = RECORDS_PER_OPERATION_MAX,
) -> Iterator[list[Item]]:
    """The items in order, in groups that fit one operation, each of at least one item."""
    batch: list[Item] = []
    record_count = size_bytes = 0
    for item in items:
        more_records, more_bytes = records(item), bytes_of(item)
        too_many = record_count + more_records > RECORDS_PER_OPERATION_MAX or len(batch) >= len_max
        if batch and (too_many or size_bytes + more_bytes > BYTES_PER_OPERATION_MAX):
            yield batch
            batch, record_count, size_bytes = [], 0, 0
        batch.append(item)
        record_count += more_records
        size_bytes += more_bytes
    if batch:
        yield batch
