"""BrokerHeartbeat (CT-30, CT-34): the transition and the answer, what is noted, and every error."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.brokers import controlled_shutdown_record, fence_record, unfence_record
from kraftlog.controller.operations.heartbeats import Heartbeat, Transition, broker_heartbeat, executed
from kraftlog.controller.rules.broker_heartbeats import BrokerHeartbeats, BrokerState, state_of
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest, BrokerHeartbeatResponse, LogDirSpace
from tests.statemachine.builders import an_id, broker, heartbeat, partition, topic
from tests.statemachine.states import Metadata, metadata

EPOCH = 5
"""Of broker 1."""
CAUGHT_UP = EPOCH + 1
NONE, FENCE, UNFENCE, CONTROLLED_SHUTDOWN = Transition


class Sessions(BrokerHeartbeats):
    """Those of a controller that has just become active, and finished what shutdowns had left."""

    def __init__(self, state: Metadata) -> None:
        super().__init__(9_000)
        self.take_over(state.brokers().values(), 0)
        for registration in state.brokers().values():
            if registration.in_controlled_shutdown:
                self.begin_controlled_shutdown(registration.broker_id, state.end_offset)


def cluster(*, fenced: bool = False, in_controlled_shutdown: bool = False, leads: bool = False) -> Metadata:
    """Brokers 1 and 2, the second one active; the first may lead a partition."""
    first, second = (1, 2) if leads else (2, 1)
    return metadata(
        broker(1, EPOCH, fenced, in_controlled_shutdown=in_controlled_shutdown),
        broker(2, 6),
        topic("a", 1),
        partition(1, replicas=(first, second)),
    )


def answer(is_caught_up: bool, is_fenced: bool, should_shut_down: bool) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=should_shut_down)


# --- transitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "request_", "transition", "is_fenced", "should_shut_down"),
    [
        pytest.param(cluster(fenced=True), {"want_shut_down": True}, NONE, True, True, id="fenced-shut down"),
        pytest.param(
            cluster(fenced=True),
            {"want_shut_down": True, "want_fence": True},
            NONE,
            True,
            True,
            id="fenced-shut down and fence",
        ),
        pytest.param(cluster(fenced=True), {}, UNFENCE, False, False, id="fenced-nothing"),
        pytest.param(cluster(fenced=True), {"want_fence": True}, NONE, True, False, id="fenced-fence"),
        pytest.param(cluster(), {}, NONE, False, False, id="unfenced-nothing"),
        pytest.param(cluster(), {"want_fence": True}, FENCE, True, False, id="unfenced-fence"),
        pytest.param(
            cluster(leads=True),
            {"want_shut_down": True, "want_fence": True},
            FENCE,
            True,
            True,
            id="unfenced-shut down and fence",
        ),
        pytest.param(
            cluster(leads=True), {"want_shut_down": True}, CONTROLLED_SHUTDOWN, False, False, id="unfenced-leads"
        ),
        pytest.param(cluster(), {"want_shut_down": True}, FENCE, True, True, id="unfenced-leads nothing"),
        pytest.param(
            cluster(in_controlled_shutdown=True, leads=True),
            {"want_shut_down": True},
            NONE,
            False,
            False,
            id="shutting down-leads",
        ),
        pytest.param(
            cluster(in_controlled_shutdown=True),
            {"want_shut_down": True},
            NONE,
            False,
            False,
            id="shutting down-others do not know",
        ),
    ],
)
def test_a_heartbeat_comes_to_a_transition_and_an_answer(
    state: Metadata, request_: dict[str, bool], transition: Transition, is_fenced: bool, should_shut_down: bool
) -> None:
    request = heartbeat(1, EPOCH, CAUGHT_UP, **request_)  # type: ignore[arg-type]
    found = broker_heartbeat(state, Sessions(state), request, 100)
    assert found == Heartbeat(transition, answer(True, is_fenced, should_shut_down))


@pytest.mark.parametrize("want_shut_down", [False, True])
def test_a_broker_goes_when_the_others_know_of_its_shutdown(want_shut_down: bool) -> None:
    state = cluster(in_controlled_shutdown=True)
    heartbeats = Sessions(state)
    request = heartbeat(1, EPOCH, CAUGHT_UP, want_shut_down=want_shut_down)
    for metadata_offset, knows in ((state.end_offset - 1, False), (state.end_offset, True)):
        broker_heartbeat(state, heartbeats, heartbeat(2, 6, metadata_offset), 100)
        found = broker_heartbeat(state, heartbeats, request, 200)
        assert found == Heartbeat(FENCE if knows else NONE, answer(True, knows, knows))


def test_the_last_active_broker_need_not_wait_for_anybody() -> None:
    state = metadata(broker(1, EPOCH, in_controlled_shutdown=True), broker(2, 6, fenced=True))
    request = heartbeat(1, EPOCH, CAUGHT_UP, want_shut_down=True)
    assert broker_heartbeat(state, Sessions(state), request, 100) == Heartbeat(FENCE, answer(True, True, True))


@pytest.mark.parametrize(
    ("metadata_offset", "is_caught_up"), [(-1, False), (0, False), (EPOCH, False), (EPOCH + 1, True), (99, True)]
)
def test_ct30_a_broker_is_caught_up_when_it_has_applied_its_registration(
    metadata_offset: int, is_caught_up: bool
) -> None:
    for fenced in (True, False):
        state = cluster(fenced=fenced)
        found = broker_heartbeat(state, Sessions(state), heartbeat(1, EPOCH, metadata_offset), 100)
        assert found.response.is_caught_up is is_caught_up
        assert found.transition is (UNFENCE if fenced and is_caught_up else NONE)
        assert found.response.is_fenced is (fenced and not is_caught_up)


# --- what is noted ----------------------------------------------------------------------------------------------------


def test_an_unfenced_broker_is_noted_to_be_alive() -> None:
    state = cluster()
    heartbeats = Sessions(state)
    broker_heartbeat(state, heartbeats, heartbeat(1, EPOCH, 42), 100)
    assert heartbeats.last_contact_ms(1) == 100
    assert heartbeats.active_metadata_offsets()[1] == 42
    assert heartbeats.last_contact_ms(2) == 0


def test_ct30_a_fenced_broker_has_no_session_until_it_is_unfenced() -> None:
    state = cluster(fenced=True)
    heartbeats = Sessions(state)
    request = heartbeat(1, EPOCH, 42)
    found = broker_heartbeat(state, heartbeats, request, 100)
    assert found.transition is UNFENCE
    assert heartbeats.last_contact_ms(1) is None
    executed(heartbeats, request, found.transition, 50, 101)
    assert heartbeats.last_contact_ms(1) == 101
    assert heartbeats.active_metadata_offsets()[1] == 42


def test_a_session_ends_when_the_fence_is_appended_and_not_before() -> None:
    state = cluster()
    heartbeats = Sessions(state)
    request = heartbeat(1, EPOCH, 42, want_fence=True)
    found = broker_heartbeat(state, heartbeats, request, 100)
    assert heartbeats.has_session(1, 101)  # if the append fails, its silence is still found
    executed(heartbeats, request, found.transition, 50, 101)
    assert not heartbeats.has_session(1, 101)


def test_a_transition_of_none_changes_no_session() -> None:
    state = cluster()
    heartbeats = Sessions(state)
    executed(heartbeats, heartbeat(1, EPOCH, 42), NONE, 50, 101)
    assert heartbeats.last_contact_ms(1) == 0


def test_a_broker_lives_from_its_registration_to_its_end() -> None:
    """The whole way: fenced, unfenced, controlled shutdown, instructed to shut down."""
    state, heartbeats = cluster(fenced=True, leads=True), BrokerHeartbeats(9_000)
    heartbeats.take_over(state.brokers().values(), 0)
    records = {UNFENCE: unfence_record, FENCE: fence_record, CONTROLLED_SHUTDOWN: controlled_shutdown_record}

    def beat(request: BrokerHeartbeatRequest) -> Heartbeat:
        found = broker_heartbeat(state, heartbeats, request, 100)
        registration = state.broker(request.broker_id)
        assert registration is not None
        if found.transition is not NONE:
            state.append([records[found.transition](registration, state.metadata_version)])
            executed(heartbeats, request, found.transition, state.end_offset, 100)
        return found

    def broker_state() -> BrokerState:
        registration = state.broker(1)
        assert registration is not None
        return state_of(registration)

    assert beat(heartbeat(1, EPOCH, CAUGHT_UP)).transition is UNFENCE
    assert beat(heartbeat(1, EPOCH, CAUGHT_UP)).transition is NONE
    assert broker_state() is BrokerState.UNFENCED
    going = heartbeat(1, EPOCH, CAUGHT_UP, want_shut_down=True)
    assert beat(going).transition is CONTROLLED_SHUTDOWN
    assert beat(going).transition is NONE
    assert broker_state() is BrokerState.CONTROLLED_SHUTDOWN
    state.append([partition(1, replicas=(2, 1))])
    beat(heartbeat(2, 6, state.end_offset))
    last = beat(going)
    assert last.transition is FENCE and last.response.should_shut_down
    assert broker_state() is BrokerState.FENCED
    assert beat(going) == Heartbeat(NONE, answer(True, True, True))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (heartbeat(9, EPOCH, 42), ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9 is not registered"),
        (heartbeat(-1, EPOCH, 42), ErrorCode.BROKER_ID_NOT_REGISTERED, "broker -1"),
        (heartbeat(1, EPOCH - 1, 42), ErrorCode.STALE_BROKER_EPOCH, "broker 1 names the epoch 4"),
        (heartbeat(1, EPOCH + 1, 42), ErrorCode.STALE_BROKER_EPOCH, "its registration has 5; register it again"),
        (heartbeat(1, EPOCH, -2), ErrorCode.INVALID_REQUEST, "broker 1 says that it has applied the metadata below"),
        (
            heartbeat(1, EPOCH, 42, offline_log_dirs=[b"short"]),
            ErrorCode.INVALID_REQUEST,
            f"{b'short'.hex()!r} as a failed log directory",
        ),
        (
            heartbeat(1, EPOCH, 42, offline_log_dirs=[an_id(1)] * 1_001),
            ErrorCode.INVALID_REQUEST,
            "names 1001 failed log directories",
        ),
        (
            heartbeat(1, EPOCH, 42, log_dir_space=[LogDirSpace()] * 1_001),
            ErrorCode.INVALID_REQUEST,
            "reports the room in 1001 log directories",
        ),
    ],
)
@pytest.mark.parametrize("fenced", [False, True])
def test_a_request_that_is_refused_says_why_and_nothing_is_noted(
    request_: BrokerHeartbeatRequest, code: ErrorCode, words: str, fenced: bool
) -> None:
    state = cluster(fenced=fenced)
    heartbeats = Sessions(state)
    before = (heartbeats.active_metadata_offsets(), [heartbeats.last_contact_ms(id_) for id_ in (1, 2, 9)])
    with pytest.raises(ApiError) as caught:
        broker_heartbeat(state, heartbeats, request_, 100)
    assert caught.value.code is code
    assert words in caught.value.args[0]
    assert (heartbeats.active_metadata_offsets(), [heartbeats.last_contact_ms(id_) for id_ in (1, 2, 9)]) == before


def test_failed_log_directories_of_a_broker_are_taken() -> None:
    state = cluster()
    request = heartbeat(1, EPOCH, 42, offline_log_dirs=[an_id(901)])
    assert broker_heartbeat(state, Sessions(state), request, 100).transition is NONE
