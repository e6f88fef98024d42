"""A follower with any log of one history ends up with its leader's log, which starts at a snapshot (SN-10 to SN-22).

Leader and follower are real replicas; the test carries messages, bytes of snapshots and the log's actions.
Messages are lost and repeated, writes refused, and the leader takes snapshots, moves its log's start and appends.
The histories are such as elections leave them (test_log_convergence), and their common records may be committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch
from raft.core.actions import (
    Action,
    AppendBatches,
    AppendSnapshot,
    DropSnapshot,
    FreezeSnapshot,
    LogRange,
    Send,
    SnapshotRange,
    TruncateFullyAndStartAt,
    TruncateLog,
)
from raft.core.epochs import LOG_BEGINNING
from raft.core.events import (
    AppendPrepared,
    AppendsScheduled,
    LogStartAdvanced,
    SnapshotAppended,
    SnapshotReceived,
    SnapshotRefused,
    SnapshotsChanged,
)
from raft.core.messages import FetchResponse, FetchSnapshotResponse, Response
from raft.core.types import Batch, OffsetAndEpoch
from tests.effort import examples
from tests.raft.core.builders import batch, begin_quorum_epoch, election_state, endpoint, replica
from tests.raft.core.test_log_convergence import Histories, batches_of, histories

LEADER_ID, FOLLOWER_ID = 2, 1
CHUNK = 7


def ends_of(log: list[Batch]) -> list[OffsetAndEpoch]:
    """Where snapshots of that log may end."""
    return [OffsetAndEpoch(epoch=one.epoch, offset=one.end_offset) for one in log]


def content(snapshot_id: OffsetAndEpoch) -> bytes:
    """The bytes of a snapshot, which are the same wherever it is taken."""
    return Random(str(snapshot_id)).randbytes(1 + (snapshot_id.offset * 5 + snapshot_id.epoch) % (4 * CHUNK))


@dataclass
class Partial:
    """A snapshot of which some bytes have arrived."""

    fetch_id: int
    data: bytes


class Conversation:
    """A leader with epoch, log and snapshots, and a follower that fetches from it."""

    def __init__(self, given_histories: Histories, random: Random) -> None:
        self.random = random
        leader_log = given_histories.common + given_histories.leader_rest
        follower_log = given_histories.common + given_histories.follower_rest
        newest = max((epoch for epoch, _ in leader_log + follower_log), default=0)
        self.leader = replica(LEADER_ID, log=leader_log, election_state=election_state(newest)).make_leader()
        self.leader_log = batches_of([*leader_log, (self.leader.epoch, 1)])
        self.snapshots: list[OffsetAndEpoch] = []

        committed = [LOG_BEGINNING, *ends_of(batches_of(given_histories.common))]
        start, known = sorted(random.choices(committed, k=2))
        observer = random.random() < 0.5
        self.follower = replica(
            FOLLOWER_ID,
            log=[(one.epoch, one.record_count) for one in batches_of(follower_log) if one.base_offset >= start.offset],
            start=None if start == LOG_BEGINNING else (start.epoch, start.offset),
            observer=observer,
            fetch_snapshot_max_bytes=CHUNK,
        )
        self.follower_log = [one for one in batches_of(follower_log) if one.base_offset >= start.offset]
        self.follower_start = start
        if known.offset > 0:
            self.follower.replica_state.high_watermark = known.offset
        self.partial: Partial | None = None
        self.begun: set[int] = set()
        self.ordered: set[type] = set()
        self.high_watermark = self.follower.replica.high_watermark
        self.follow()

    def follow(self) -> None:
        self.execute(self.follower.deliver(begin_quorum_epoch(LEADER_ID, self.leader.epoch)))

    # --- the leader's side ------------------------------------------------------------------------------------------

    def change_leader_log(self) -> None:
        """Something that a leader does during a transfer: append, take or delete a snapshot, move its log's start."""
        what = self.random.choice(["append", "snapshot", "start"])
        if what == "append":
            end_offset = self.leader.replica.log_end_offset
            self.leader.step(AppendPrepared(1, self.leader.leading.epoch, b"", 2))
            self.leader.step(AppendsScheduled())
            self.leader.flush()
            self.leader_log.append(batch(end_offset, 2, self.leader.epoch))
        elif what == "snapshot":
            self.take_snapshot()
        elif self.snapshots:
            start = self.random.choice(self.snapshots)
            if start.offset >= self.leader.replica_state.log.start_offset:
                self.snapshots = [one for one in self.snapshots if one >= start]
                self.leader.step(LogStartAdvanced(start))

    def take_snapshot(self) -> None:
        """A snapshot that is newer than all, or none."""
        known = self.snapshots[-1] if self.snapshots else LOG_BEGINNING
        ends = [one for one in ends_of(self.leader_log) if one > known]
        if ends:
            self.snapshots.append(self.random.choice(ends))
            self.leader.step(SnapshotsChanged(self.snapshots[-1]))

    def filled(self, response: Response) -> Response:
        """The answer that arrives: the bytes where the leader named a range of them."""
        match response, self.leader.reads:
            case FetchResponse(), LogRange(start_offset=start_offset):
                assert start_offset >= self.leader.replica_state.log.start_offset, (
                    "there are no records below the start"
                )
                assert any(start_offset == one.base_offset for one in self.leader_log), "batches are sent whole"
                records = [one for one in self.leader_log if one.base_offset >= start_offset]
                return replace(response, records=tuple(records[: self.random.randint(1, 2)]))
            case FetchSnapshotResponse(snapshot_id=snapshot_id), SnapshotRange() as wanted:
                if snapshot_id not in self.snapshots:
                    return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND, data=b"")
                data = content(snapshot_id)
                assert wanted.position < len(data)
                part = data[wanted.position :][: self.random.randint(1, wanted.max_bytes)]
                return replace(response, size=len(data), data=part)
        return response

    # --- the follower's side ----------------------------------------------------------------------------------------

    def execute(self, actions: list[Action], *, may_refuse: bool = False) -> None:
        for action in [*actions, *self.follower.flush()]:
            self.ordered.add(type(action))
            match action:
                case TruncateLog(end_offset):
                    self.follower_log = [one for one in self.follower_log if one.end_offset <= end_offset]
                    ends = [self.follower_start.offset, *(one.end_offset for one in self.follower_log)]
                    assert ends[-1] == end_offset >= self.high_watermark
                case AppendBatches(batches):
                    self.follower_log += batches
                case TruncateFullyAndStartAt(snapshot_id):
                    assert snapshot_id.offset >= self.high_watermark
                    self.follower_log, self.follower_start = [], snapshot_id
                case AppendSnapshot() | FreezeSnapshot() | DropSnapshot():
                    self.write_snapshot(action, may_refuse=may_refuse)
        self.high_watermark = self.follower.replica.high_watermark

    def write_snapshot(self, action: AppendSnapshot | FreezeSnapshot | DropSnapshot, *, may_refuse: bool) -> None:
        partial = self.partial
        if isinstance(action, AppendSnapshot) and action.fetch_id not in self.begun:
            assert partial is None, "an earlier transfer is dropped first"
            self.begun.add(action.fetch_id)
            partial = self.partial = Partial(action.fetch_id, b"")
        elif isinstance(action, DropSnapshot):
            self.partial = None  # it is not reported, and perhaps none of its bytes has arrived
            return
        assert partial is not None
        assert partial.fetch_id == action.fetch_id
        if may_refuse and self.random.random() < 0.2:
            self.partial = None
            self.execute(self.follower.step(SnapshotRefused(action.fetch_id)))
        elif isinstance(action, AppendSnapshot):
            partial.data += action.data
            self.execute(
                self.follower.step(SnapshotAppended(action.fetch_id, len(partial.data))), may_refuse=may_refuse
            )
        else:
            assert partial.data == content(action.snapshot_id), "every byte is there, in its place"
            self.partial = None
            self.execute(self.follower.step(SnapshotReceived(action.fetch_id)))

    # --- the messages -----------------------------------------------------------------------------------------------

    def request(self) -> Send | None:
        """The last request to the leader. The other voters are down."""
        last: Send | None = None
        for send in self.follower.sent:
            if send.destination == endpoint(LEADER_ID):
                last = send
            else:
                self.execute(self.follower.fail(send))
        return last

    def turn(self, fault_rate: float) -> bool:
        """Carry one request and its answer. Return False if the leader does not answer it."""
        send = self.request()
        if send is None:
            self.execute(self.follower.advance(20))
            if self.follower.leader_id != LEADER_ID:
                self.follow()
            return True
        if self.random.random() < fault_rate:
            if self.random.random() < 0.5:
                self.leader.ask(send.request)  # it came, but its answer is lost
            self.execute(self.follower.fail(send))
            return True
        if self.random.random() < fault_rate:
            self.leader.ask(send.request)  # it came twice
        response = self.leader.ask(send.request)
        if response is None:
            return False
        filled = self.filled(response)
        self.execute(self.follower.answer(send, filled), may_refuse=self.random.random() < fault_rate)
        if self.random.random() < fault_rate:
            self.execute(self.follower.answer(send, filled))
        return True

    def converge(self, turns_max: int) -> None:
        """No further faults, and the leader is quiet."""
        for _ in range(turns_max):
            if not self.turn(0.0):
                return
        raise AssertionError("the follower does not get there")


def check_equal(conversation: Conversation) -> None:
    """The follower's log is the leader's from its own start on, and its core has the same view of it."""
    start = conversation.follower_start
    log, leaders = conversation.follower.replica_state.log, conversation.leader.replica_state.log
    assert conversation.follower_log == [one for one in conversation.leader_log if one.base_offset >= start.offset]
    assert (log.start, log.end) == (start, leaders.end)
    assert start == LOG_BEGINNING or start in ends_of(conversation.leader_log), "it starts within the leader's log"
    for epoch in range(max(start.epoch, leaders.start.epoch), leaders.last_epoch + 1):
        own = log.epochs.end_offset_for_epoch(Epoch(epoch), log.end_offset)
        assert own == leaders.epochs.end_offset_for_epoch(Epoch(epoch), leaders.end_offset)


@settings(max_examples=examples(400), deadline=None)
@given(histories(), st.integers(0, 2**32), st.integers(0, 4), st.booleans())
def test_sn22_a_follower_ends_up_with_its_leaders_log_from_its_own_start_on(
    given_histories: Histories, seed: int, changes: int, has_faults: bool
) -> None:
    conversation = Conversation(given_histories, Random(seed))
    for _ in range(changes):
        conversation.change_leader_log()
    for _ in range(20 if has_faults else 0):
        if conversation.random.random() < 0.2:
            conversation.change_leader_log()
        if not conversation.turn(0.3):
            conversation.execute(conversation.follower.advance(3000))
            conversation.follow()
    conversation.execute(conversation.follower.advance(3000))  # parked and lost requests time out
    conversation.follow()
    conversation.converge(turns_max=200)
    check_equal(conversation)


def test_sn22_every_way_of_getting_there_is_taken() -> None:
    """Checks that the test above is not vacuous. These follow a leader of epoch 3 alone, not of the epochs after."""
    taken: set[type] = set()
    for seed in range(100):
        random = Random(seed)
        common = [(1, 2)] * random.randint(0, 2)
        conversation = Conversation(Histories(common, [(2, 2), (4, 1)], [(3, random.randint(1, 4))]), random)
        for _ in range(4):
            conversation.change_leader_log()
        for _ in range(random.randint(0, 8)):
            conversation.turn(0.2)
            if random.random() < 0.4:
                conversation.change_leader_log()
        conversation.execute(conversation.follower.advance(3000))
        conversation.follow()
        conversation.converge(turns_max=200)
        check_equal(conversation)
        taken |= conversation.ordered
    assert {TruncateFullyAndStartAt, AppendSnapshot, FreezeSnapshot, DropSnapshot, TruncateLog, AppendBatches} <= taken
