"""A broker that is started before its nodes waits for them, and says so once."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.operation_stream import NotSent
from kraftlog.broker import first_answer
from kraftlog.broker.first_answer import cluster_id_when_known

SILENT = NotSent(ErrorCode.BROKER_NOT_AVAILABLE, "no node answers at 127.0.0.1:1")


class Client:
    """Gives one answer after the other."""

    def __init__(self, *answers: str | ApiError) -> None:
        self._answers = list(answers)

    async def cluster_id(self) -> str:
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait takes any time."""
    monkeypatch.setattr(first_answer, "ASK_AGAIN_SECONDS", 0)


async def test_it_waits_until_a_node_answers() -> None:
    told: list[str] = []
    assert await cluster_id_when_known(Client(SILENT, SILENT, SILENT, "cluster"), told.append) == "cluster"
    assert told == [
        "waiting for the nodes of the cluster: no node answers at 127.0.0.1:1",
        "the nodes answer",
    ]


async def test_one_that_answers_is_not_waited_for() -> None:
    told: list[str] = []
    assert await cluster_id_when_known(Client("cluster"), told.append) == "cluster"
    assert told == []


async def test_another_error_ends_it() -> None:
    with pytest.raises(ApiError, match="another"):
        await cluster_id_when_known(Client(ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, "another")), print)
