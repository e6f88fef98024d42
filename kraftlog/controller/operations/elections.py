"""ElectLeaders, and the elections that the controller holds by itself (CT-24, CT-19, CT-66).

From a request or a page of partitions and the latest metadata to records. Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.lookups import find_partition_by_name, partition_name
from kraftlog.controller.rules.disk_space import DiskSpace
from kraftlog.controller.rules.pages import PartitionPages, led_by, where
from kraftlog.controller.rules.partition_change import Election, Target, directory_of
from kraftlog.controller.rules.partition_context import PartitionChanges, is_in_older_directory
from kraftpb.v1.admin_pb2 import ElectLeadersRequest, ElectLeadersResponse, PartitionReference, PartitionResult
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.replay.replay import changed_partition
from statemachine.tables.topic_tables import NOT_LED_BY_PREFERRED
from statemachine.words.full_log_dirs import is_full
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths
from statemachine.words.repeats import repeats


def elect_leaders(
    state: MetadataState, request: ElectLeadersRequest
) -> tuple[list[MetadataRecord], ElectLeadersResponse]:
    """The records of the elections of the partitions that are named, and an answer for each, in their order.

    A request that names none means all: `ElectionPages` handles it. Raises ApiError(INVALID_REQUEST) if the kind of
    election is unknown or a name is far too long, RECORD_LIST_TOO_LARGE if the elections are too many for one batch
    (CT-12).
    """
    voting = _Voting(PartitionChanges(state), _election(request))
    _elect_named(state, request.partitions.partitions, voting)
    return voting.records, ElectLeadersResponse(partitions=voting.results)


class ElectionPages:
    """Elections wherever they are needed, page by page, each page decided on the latest state (CT-12)."""

    def __init__(self, state: MetadataState, request: ElectLeadersRequest, response: ElectLeadersResponse) -> None:
        """`response` fills with answers for the partitions whose election was held, or failed.

        Raises ApiError(INVALID_REQUEST) if the kind of election is unknown.
        """
        self._state = state
        self._election = _election(request)
        self._response = response
        self._of_page: list[PartitionResult] = []
        is_unclean = self._election is Election.UNCLEAN
        source = led_by(state, NO_LEADER) if is_unclean else where(state, NOT_LED_BY_PREFERRED)
        self._pages = PartitionPages([source], self._decide)

    def next_page(self) -> list[MetadataRecord] | None:
        """The records of the next page."""
        records = self._pages.next_page()
        if not records:
            self._answer_page()
        return records

    def appended(self) -> None:
        """Continue after the page, whose elections are held."""
        self._pages.appended()
        self._answer_page()

    def _decide(self, page: Sequence[PartitionRecord]) -> list[MetadataRecord]:
        voting = _Voting(PartitionChanges(self._state), self._election)
        for partition in page:
            topic_name = self._state.topic_name(partition.topic_id) or ""
            error, note = None, ""
            try:
                note = voting.elect(topic_name, partition)
            except ApiError as refused:
                error = refused.with_traceback(None)  # it would hold the request, in a cycle
            voting.answer(topic_name, partition.partition_id, error, note)
        self._of_page = voting.results
        return voting.records

    def _answer_page(self) -> None:
        self._response.partitions.extend(self._of_page)
        self._of_page = []


def _election(request: ElectLeadersRequest) -> Election:
    """The requested kind; raises ApiError(INVALID_REQUEST)."""
    if request.election_type not in (ElectLeadersRequest.PREFERRED, ElectLeadersRequest.UNCLEAN):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{request.election_type} is not a type of election; use 0 (preferred) or 1 (unclean)",
        )
    is_unclean = request.election_type == ElectLeadersRequest.UNCLEAN
    return Election.UNCLEAN if is_unclean else Election.PREFERRED


class _Voting:
    """The elections that one request has held so far."""

    def __init__(self, changes: PartitionChanges, election: Election) -> None:
        self._changes = changes
        self._election = election
        self.is_unclean = election is Election.UNCLEAN
        self.records: list[MetadataRecord] = []
        self.results: list[PartitionResult] = []

    def is_needed(self, partition: PartitionRecord) -> bool:
        """Whether a partition lacks the leader that the election is for."""
        if self.is_unclean:
            return partition.leader == NO_LEADER
        return partition.leader != partition.replicas[0]

    def elect(self, topic_name: str, partition: PartitionRecord) -> str:
        """Hold the election, and return a note on its result; raise ApiError if no leader is elected.

        Consider a reassignment from broker 2 to brokers 3 and 1, of which 1 was elected uncleanly, and 3 is fenced.
        Broker 1 is alone in sync, and was added: the reassignment is complete, which the next change of the partition
        detects. This election may be that change, although its preferred leader cannot lead; Kafka returns no error
        then. But no election removes a leader.
        """
        record = self._changes.change(partition, Target(election=self._election))
        leader = NO_LEADER if record is None else changed_partition(partition, record.partition_change).leader
        if record is not None and leader != NO_LEADER:
            self.records.append(record)
            return self._note(partition, leader)
        what = partition_name(topic_name, partition.partition_id)
        if self.is_unclean:
            raise ApiError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"{what} has no replica on a broker that is active; start one of {list(partition.replicas)}",
            )
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"the preferred leader of {what}, broker {partition.replicas[0]}, is not active or not in sync;"
            " wait until it is",
        )

    def _note(self, partition: PartitionRecord, leader: int) -> str:
        if directory_of(partition, leader) == DAMAGED_DIRECTORY:
            return f"broker {leader} leads, and its log is damaged: the log lines of the broker name the lost offsets"
        older = self._changes.brokers[leader].older_log_dirs
        if leader in partition.isr or not is_in_older_directory(partition, leader, older):
            return ""
        return (
            f"broker {leader} leads, and its log directory was an older copy when it registered: if it has not been in"
            " sync since, records acknowledged after the copy was made are lost"
        )

    def answer(self, topic_name: str, partition_id: int, error: ApiError | None = None, note: str = "") -> None:
        """Add the answer for a partition."""
        result = PartitionResult(topic=topic_name, partition_id=partition_id, error_message=note)
        if error is not None:
            result.error_code, result.error_message = error.code, error.args[0]
        self.results.append(result)


def _elected(
    changes: PartitionChanges, partition: PartitionRecord, election: Election, leaders: Collection[int] | None = None
) -> MetadataRecord | None:
    """The record that gives a partition another leader, one of `leaders`; None if none of them can lead."""
    record = changes.change(partition, Target(election=election, leaders=leaders))
    if record is None:
        return None
    leader = changed_partition(partition, record.partition_change).leader
    return None if leader in (NO_LEADER, partition.leader) else record


def _elect_named(state: MetadataState, references: Iterable[PartitionReference], voting: _Voting) -> None:
    references = list(references)
    check_record_count(len(references))
    check_name_lengths(reference.topic for reference in references)
    repeated = repeats((reference.topic, reference.partition_id) for reference in references)
    for reference in references:
        error, note = None, ""
        try:
            partition = find_partition_by_name(state, reference.topic, reference.partition_id)
            what = partition_name(reference.topic, reference.partition_id)
            if (reference.topic, reference.partition_id) in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} is in the request more than once")
            if not voting.is_needed(partition):
                kind = "a leader" if voting.is_unclean else "its preferred leader"
                raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{what} has {kind}, broker {partition.leader}")
            note = voting.elect(reference.topic, partition)
        except ApiError as refused:
            error = refused.with_traceback(None)  # it would hold the request, in a cycle
        voting.answer(reference.topic, reference.partition_id, error, note)


# --- the controller's own ---------------------------------------------------------------------------------------------


def elect_preferred_where_needed(
    state: MetadataState, partitions: Iterable[PartitionRecord], limit: int
) -> list[MetadataRecord]:
    """At most `limit` elections that return partitions to their preferred leader, if that can lead and has room."""
    changes = PartitionChanges(state)
    records: list[MetadataRecord] = []
    for partition in partitions:
        if len(records) >= limit:
            break
        preferred = partition.replicas[0]
        if partition.leader == preferred or _has_no_room(changes, partition, preferred):
            continue
        record = _elected(changes, partition, Election.PREFERRED)
        if record is not None and record.partition_change.leader == preferred:
            records.append(record)
    return records


# Consider brokers 1, 2 and 3, and a partition that broker 1 leads. Its disk is full, so it refuses every append. Broker
# 2 is in sync and has 1.5 times the low-water mark free: it would be full a moment later. Broker 3 is in sync and has
# plenty of room: it leads. When broker 1 has room again, the next search for preferred leaders returns the partition.
def lead_where_there_is_room(
    state: MetadataState, partitions: Iterable[PartitionRecord], space: DiskSpace, now_ms: float
) -> list[MetadataRecord]:
    """Elections for those of `partitions` whose leader's disk is full while a replica in sync has room (CT-66)."""
    changes = PartitionChanges(state)
    records: list[MetadataRecord] = []
    for partition in partitions:
        if not _has_no_room(changes, partition, partition.leader) or not space.may_move(partition, now_ms):
            continue
        leaders = [
            broker_id
            for broker_id in partition.isr
            if (broker := changes.brokers.get(broker_id)) is not None
            and space.has_room(broker, directory_of(partition, broker_id))
        ]
        record = _elected(changes, partition, Election.ONLINE, leaders)
        if record is not None:
            space.moves(partition, now_ms)
            records.append(record)
    return records


def _has_no_room(changes: PartitionChanges, partition: PartitionRecord, broker_id: int) -> bool:
    broker = changes.brokers.get(broker_id)
    return broker is not None and is_full(broker, directory_of(partition, broker_id))


def elect_unclean_where_allowed(
    state: MetadataState, partitions: Iterable[PartitionRecord], limit: int
) -> list[MetadataRecord]:
    """At most `limit` unclean elections, for partitions without a leader whose topic allows it (CT-19).

    unclean.leader.election.enable may have become true since the leader was lost.
    """
    changes = PartitionChanges(state)
    records: list[MetadataRecord] = []
    for partition in partitions:
        if len(records) >= limit:
            break
        if partition.leader == NO_LEADER and changes.allows_unclean(partition.topic_id):
            record = _elected(changes, partition, Election.UNCLEAN)
            if record is not None:
                records.append(record)
    return records


def without_eligible(state: MetadataState, partitions: Iterable[PartitionRecord]) -> list[MetadataRecord]:
    """Remove the eligible replicas of those of `partitions` whose ISR is not empty. The records must come no later than
    the record that lowers min.insync.replicas: from then on an ISR that was too small may commit records that the
    eligible replicas do not have (KIP-966; Kafka's ClearElr record). Where the ISR is empty nothing is committed, so
    they stay eligible.
    """
    changes = PartitionChanges(state)
    records = []
    for partition in partitions:
        if partition.isr and partition.eligible_leader_replicas:
            record = changes.change(partition, Target(lost_data=partition.eligible_leader_replicas))
            if record is not None:
                records.append(record)
    return records
