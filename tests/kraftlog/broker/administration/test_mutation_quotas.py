"""A client that changes more than its quota allows is told so, and is let wait (KIP-599, CT-20)."""

from __future__ import annotations

from pathlib import Path

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.refusals import QUOTA_THROTTLE_MS
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.kraftlog.broker.administration.world import administration_world


async def test_a_client_over_its_quota_waits_and_another_does_not(tmp_path: Path) -> None:
    slow = ControllerConfig(
        broker_session_timeout_ms=3_600_000, controller_mutation_rate=0.000_1, controller_mutation_burst=1
    )
    async with administration_world(tmp_path, slow) as world:
        codes = []
        for number, client_id in enumerate(("hasty", "hasty", "other")):
            topic = CreatableTopic(name=f"topic-{number}", num_partitions=3, replication_factor=1)
            body = CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
            response = await world.answer(body, 7, CreateTopicsResponse, client_id)
            codes.append(response.topics[0].error_code)
            assert response.throttle_time_ms == world.throttles[-1]
        assert codes == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE]
        assert world.throttles == [0, QUOTA_THROTTLE_MS, 0]
