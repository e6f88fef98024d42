"""Whatever values a request has, it is answered, and not with a failure of the broker."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftlog.broker.dispatch import KEYS
from kraftlog.kafka.apis import api_of
from tests.effort import examples
from tests.kraftlog.broker.administration.test_every_version import CASES, codes_in
from tests.kraftlog.broker.administration.world import ME, AdministrationWorld
from tests.kraftlog.kafka.values import modest_values, values

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = {"name", "topic", "topic_name", "feature"}


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_every_request_is_answered(world: AdministrationWorld, data: st.DataObject) -> None:
    # Brokers that are unregistered would not serve the next example.
    name, version = data.draw(st.sampled_from([case for case in CASES if case[0] != "UnregisterBroker"]))
    api = api_of(KEYS[name])
    body = data.draw(data.draw(st.sampled_from([values, modest_values]))(api.request, version))
    if hasattr(body, "timeout_ms"):
        body.timeout_ms = max(body.timeout_ms, 20_000)
    response = await world.answer(body, version, api.response)
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes_in(response)
    assert ME in world.broker.cluster.brokers
