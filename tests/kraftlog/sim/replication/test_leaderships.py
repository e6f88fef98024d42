"""What the judge of leaderships finds in what a listener hears."""

from __future__ import annotations

import pytest

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.leaderships import HeardLeaderships

A, B = (b"a", 0), (b"a", 1)


@pytest.fixture
def heard() -> HeardLeaderships:
    """The listener was told that the broker leads A in epoch 3."""
    leaderships = HeardLeaderships("1")
    leaderships.begins(A, 3)
    return leaderships


def test_leaderships_begin_and_end_one_after_the_other(heard: HeardLeaderships) -> None:
    heard.acknowledges(A, 3)
    heard.begins(B, 0)
    heard.leads({A: 3, B: 0})
    heard.ends(A, 3)
    heard.begins(A, 3)  # its log was offline for a while
    heard.ends(A, 3)
    heard.begins(A, 7)
    heard.acknowledges(A, 7)
    heard.ends(B, 0)
    heard.ends(A, 7)
    heard.is_over()


def test_one_begins_before_the_end_of_another(heard: HeardLeaderships) -> None:
    with pytest.raises(Violation, match=r"110.*begins epoch 4 before the end of epoch 3"):
        heard.begins(A, 4)


def test_epochs_go_back(heard: HeardLeaderships) -> None:
    heard.ends(A, 3)
    with pytest.raises(Violation, match=r"110.*begins epoch 2 after epoch 3"):
        heard.begins(A, 2)


@pytest.mark.parametrize(("key", "epoch", "led"), [(A, 4, "in 3"), (B, 3, "in none")])
def test_one_ends_that_has_not_begun(heard: HeardLeaderships, key: tuple[bytes, int], epoch: int, led: str) -> None:
    with pytest.raises(Violation, match=rf"110.*ends epoch {epoch}, but led {led}"):
        heard.ends(key, epoch)


@pytest.mark.parametrize(("key", "epoch", "told"), [(A, 4, "3"), (B, 3, "none")])
def test_a_batch_is_acknowledged_first(heard: HeardLeaderships, key: tuple[bytes, int], epoch: int, told: str) -> None:
    with pytest.raises(Violation, match=rf"110.*acknowledges in epoch {epoch}, but the reported epoch is {told}"):
        heard.acknowledges(key, epoch)


def test_the_broker_leads_something_else_than_was_told(heard: HeardLeaderships) -> None:
    with pytest.raises(Violation, match=r"110.*leads in 4, but the reported epoch is 3"):
        heard.leads({A: 4})
    with pytest.raises(Violation, match=r"110.*partition 1 .*leads in 0, but the reported epoch is none"):
        heard.leads({A: 3, B: 0})


def test_the_broker_ends_without_a_word(heard: HeardLeaderships) -> None:
    with pytest.raises(Violation, match=r"110.*leads in none, but the reported epoch is 3"):
        heard.is_over()
