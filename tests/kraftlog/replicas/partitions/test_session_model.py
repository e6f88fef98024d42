"""Readers that do as they like, against a model of their sessions: DB-90 for what is told, DB-91 for who has a slot."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.replicas.partitions.fetch_contexts import FetchContext, FetchIntent, SessionResponse, fetch_context
from kraftlog.replicas.partitions.fetch_sessions import FetchPosition, FetchSessionCache, PartitionKey
from kraftlog.replicas.partitions.reading import Read
from kraftlog.storage.leader_epochs import EpochEnd
from tests.effort import examples
from tests.kraftlog.replicas.partitions.session_model import ModelSession, ModelSessions

SLOTS, PARTITIONS_MAX, CACHED_MAX = 3, 6, 15
READS = st.sampled_from(
    [
        Read(None, 5, 5, 0),
        Read(None, 6, 6, 0),
        Read(None, 6, 6, 2),
        Read(None, 6, 6, 2, records=b"records"),
        Read(None, 6, 6, 2, EpochEnd(0, 3)),
        Read(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")),
        Read(ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "too far"), 6, 6, 2),
    ]
)
NUMBERS = st.integers(0, 7)
OFFSETS = st.integers(0, 3)
FEW = st.dictionaries(NUMBERS, OFFSETS, max_size=2)
ALL = st.one_of(st.dictionaries(NUMBERS, OFFSETS, min_size=1, max_size=3), st.dictionaries(NUMBERS, OFFSETS))


@dataclass
class Waiting:
    """A request of a session that is not answered yet."""

    context: FetchContext
    session: ModelSession
    epoch: int


def key(number: int) -> PartitionKey:
    return PartitionKey("clicks", ZERO_UUID, number)


class Readers(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        self.real = FetchSessionCache(
            iter(range(1, 10_000)).__next__, SLOTS, partitions_max=PARTITIONS_MAX, cached_partitions_max=CACHED_MAX
        )
        self.model = ModelSessions(SLOTS, PARTITIONS_MAX, CACHED_MAX)
        self.now_ms = 0
        self.made = 0
        self.waiting: list[Waiting] = []

    def _take(
        self, session_id: int, epoch: int, requested: dict[int, int], forgotten: list[int], is_follower: bool = False
    ) -> FetchContext | ErrorCode:
        positions = {key(number): FetchPosition(offset, 100) for number, offset in requested.items()}
        intent = FetchIntent(session_id, epoch, positions, [key(one) for one in forgotten], False, is_follower)
        return fetch_context(self.real, intent, self.now_ms)

    def _answer(self, context: FetchContext, data: st.DataObject) -> tuple[dict[int, Read], SessionResponse]:
        results = {one.number: data.draw(READS) for one in context.wanted}
        return results, context.commit([(key(number), read) for number, read in results.items()], self.now_ms)

    @rule(passed_ms=st.sampled_from([1, 60_000, 120_000, 120_001]), are_used=st.booleans())
    def time_passes(self, passed_ms: int, are_used: bool) -> None:
        """With sessions that are used at the end of it, or not."""
        self.now_ms += passed_ms
        for session in [one for one in self.model.sessions if are_used and one.offsets]:
            assert self.model.use(session, self.now_ms)
            assert not isinstance(self._take(session.session_id, session.epoch, {}, []), ErrorCode)
            session.epoch += 1

    @rule(
        data=st.data(), named=st.sampled_from([0, 0, 0, 1, 2, 3]), requested=ALL, is_follower=st.booleans(),
        is_last=st.sampled_from([False, False, False, True]),
    )  # fmt: skip
    def read_all(
        self, data: st.DataObject, named: int, requested: dict[int, int], is_follower: bool, is_last: bool
    ) -> None:
        context = self._take(named, -1 if is_last else 0, requested, [], is_follower)
        assert not isinstance(context, ErrorCode)
        self.model.close(named)
        results, told = self._answer(context, data)
        assert [one.number for one, _ in told.results] == list(requested)
        assert told.error is ErrorCode.NONE
        if is_last or not self.model.has_room(len(requested), is_follower, self.now_ms):
            assert told.session_id == 0
            return
        self.made += 1
        assert told.session_id == self.made
        session = ModelSession(self.made, is_follower, self.now_ms, self.now_ms, 0)
        session.ask(requested, [])
        session.commit(results)
        session.order = list(requested)
        self.model.add(session)

    @rule(
        data=st.data(), requested=FEW, forgotten=st.lists(NUMBERS, max_size=3), is_wrong=st.sampled_from([0, 0, 0, 1])
    )
    @precondition(lambda self: self.model.sessions)
    def read_on(self, data: st.DataObject, requested: dict[int, int], forgotten: list[int], is_wrong: int) -> None:
        session = data.draw(st.sampled_from(self.model.sessions))
        context = self._take(session.session_id, session.epoch + is_wrong, requested, forgotten)
        if is_wrong:
            assert context is ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return
        session.ask(requested, forgotten)
        if not session.offsets:
            self.model.close(session.session_id)
            assert not isinstance(context, ErrorCode)
            assert self._answer(context, data)[1].session_id == 0
        elif self.model.use(session, self.now_ms):
            assert not isinstance(context, ErrorCode)
            session.epoch += 1
            positions = [(one.number, position.offset) for one, position in context.wanted.items()]
            assert positions == [(number, session.offsets[number]) for number in session.order]
            self.waiting.append(Waiting(context, session, session.epoch))
        else:
            assert context is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @rule(data=st.data(), is_throttled=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.waiting)
    def answer(self, data: st.DataObject, is_throttled: bool) -> None:
        waiting = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        if is_throttled:
            results, told = {}, waiting.context.empty_response()
        else:
            results, told = self._answer(waiting.context, data)
        assert told.session_id == waiting.session.session_id
        if waiting.epoch != waiting.session.epoch:
            assert (told.error, told.results) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
            return
        assert told.error is ErrorCode.NONE
        assert [one.number for one, _ in told.results] == waiting.session.commit(results)

    @rule(session_id=st.integers(-1, 4))
    def read_on_without_a_session(self, session_id: int) -> None:
        if self.model.find(session_id) is None:
            assert self._take(session_id, 1, {0: 0}, []) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "real"):
            return
        assert len(self.real) == len(self.model.sessions) <= SLOTS
        assert all(self.real.get(one.session_id) is not None for one in self.model.sessions)
        assert self.real.partition_count == self.model.cached <= CACHED_MAX


TestReaders = Readers.TestCase
TestReaders.settings = settings(
    max_examples=examples(200),
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink a case takes longer than a test may
)
