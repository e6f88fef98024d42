"""How many epochs peers may make a replica enter, and that a replica that was away is accepted (RF-114)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from raft.core.epoch_allowance import EPOCHS_AT_ONCE_MAX, EPOCHS_PER_SECOND
from raft.core.messages import Request
from raft.core.states import Role
from tests.effort import all_cases
from tests.raft.core.builders import (
    Harness,
    begin_quorum_epoch,
    election_state,
    end_quorum_epoch,
    fetch_response,
    replica,
    vote,
)

EPOCH = 5
DAY_MS = 24 * 3_600_000
ROUNDS = 2_000 if all_cases() else 400


def claims(epoch: int) -> list[Request]:
    """A request that enters an epoch if a voter sends it."""
    return [
        vote(2, epoch),
        vote(2, epoch, pre_vote=True),
        begin_quorum_epoch(3, epoch),
        end_quorum_epoch(3, epoch),
    ]


def harness() -> Harness:
    return replica(election_state=election_state(EPOCH))


@pytest.mark.parametrize("kind", range(4))
def test_rf114_who_claims_higher_and_higher_epochs_gets_a_million_and_then_a_hundred_a_second(kind: int) -> None:
    attacked = harness()
    began_ms, elections = attacked.now_ms, 0
    for _ in range(ROUNDS):
        for ahead in (2**30, EPOCHS_AT_ONCE_MAX, 10_000, 100, 10, 1, 1, 1):
            attacked.ask(claims(attacked.epoch + ahead)[kind])
        before = attacked.epoch
        attacked.advance(37)
        elections += attacked.epoch - before
        seconds = (attacked.now_ms - began_ms) / 1_000
        assert attacked.epoch <= EPOCH + EPOCHS_AT_ONCE_MAX + EPOCHS_PER_SECOND * seconds + elections
    assert (
        attacked.epoch >= EPOCH + EPOCHS_AT_ONCE_MAX + EPOCHS_PER_SECOND * ROUNDS * 35 // 1_000
    )  # it was a real attack
    assert elections == 0


@pytest.mark.parametrize("kind", range(4))
def test_rf114_a_replica_that_is_further_behind_is_let_in_when_its_allowance_has_grown(kind: int) -> None:
    away, behind = harness(), 3 * EPOCHS_AT_ONCE_MAX
    grown_ms = 1_000 * (behind - EPOCHS_AT_ONCE_MAX) // EPOCHS_PER_SECOND
    assert away.ask(claims(EPOCH + behind)[kind]).error is ErrorCode.INVALID_REQUEST
    away.now_ms += grown_ms - 1
    assert away.ask(claims(EPOCH + behind)[kind]).error is ErrorCode.INVALID_REQUEST
    assert away.epoch == EPOCH
    away.now_ms += 1
    assert away.ask(claims(EPOCH + behind)[kind]).error is ErrorCode.NONE
    assert away.epoch == EPOCH + behind


def test_rf114_answers_take_a_replica_no_further_than_requests() -> None:
    away = harness().make_follower(2, EPOCH)
    answer = fetch_response(3, EPOCH + EPOCHS_AT_ONCE_MAX + 1, error=ErrorCode.FENCED_LEADER_EPOCH)
    away.answer(away.sent[-1], answer)
    assert away.epoch == EPOCH
    away.advance(100)  # it backs off, and asks again
    away.answer(away.sent[-1], answer)
    assert away.epoch == EPOCH + EPOCHS_AT_ONCE_MAX + 1


def test_rf114_time_without_a_claim_saves_nothing_up() -> None:
    """An attacker cannot take all epochs at once because the process has run for years."""
    quiet = harness()
    quiet.now_ms += 1_000 * DAY_MS
    assert quiet.ask(vote(2, EPOCH + EPOCHS_AT_ONCE_MAX + 1)).error is ErrorCode.INVALID_REQUEST
    assert quiet.ask(vote(2, EPOCH + EPOCHS_AT_ONCE_MAX)).error is ErrorCode.NONE


def test_rf114_claims_of_strangers_save_nothing_up_either() -> None:
    quiet = harness()
    far = EPOCH + 2 * EPOCHS_AT_ONCE_MAX
    assert quiet.ask(vote(8, far)).vote_granted is False
    quiet.now_ms += 1_000 * DAY_MS
    assert quiet.ask(vote(2, far)).error is ErrorCode.INVALID_REQUEST


def test_rf114_a_replica_whose_allowance_is_used_up_still_elects() -> None:
    attacked = harness()
    attacked.ask(vote(2, EPOCH + EPOCHS_AT_ONCE_MAX))
    attacked.make_leader()
    assert (attacked.role, attacked.epoch) == (Role.LEADER, EPOCH + EPOCHS_AT_ONCE_MAX + 1)


def test_rf114_voters_that_were_attacked_apart_agree_again_after_as_long_as_the_attack_took() -> None:
    """One voter is attacked for an hour while the other is cut off from it: it is refused for an hour at most."""
    attacked, other = harness(), harness()
    hour_ms = 3_600_000
    attacked.ask(vote(3, EPOCH + EPOCHS_AT_ONCE_MAX))
    for _ in range(60):
        attacked.now_ms += hour_ms // 60
        attacked.ask(vote(3, attacked.epoch + EPOCHS_PER_SECOND * 60))
    other.now_ms += hour_ms
    waited_ms = 0
    while other.ask(vote(2, attacked.epoch)).error is not ErrorCode.NONE and waited_ms <= hour_ms:
        other.now_ms += 60_000
        waited_ms += 60_000
    assert waited_ms <= hour_ms
    assert other.epoch == attacked.epoch == EPOCH + EPOCHS_AT_ONCE_MAX + EPOCHS_PER_SECOND * 3_600
