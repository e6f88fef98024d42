"""A broker's feed of the metadata on an event loop: it ends the broker when it fails, and is waited for at the end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import awaited
from kraftlog.broker.followed_metadata import FollowedMetadata

ANOTHER_CLUSTER = ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, "another")


async def test_what_ends_it_is_told() -> None:
    failed: list[BaseException] = []

    async def fail() -> None:
        raise ANOTHER_CLUSTER

    feed = FollowedMetadata(cast(Any, None), fail, failed.append)
    feed.follow()
    while not failed:
        await asyncio.sleep(0)
    assert failed == [ANOTHER_CLUSTER]
    await awaited(feed.stop)


async def test_nothing_is_fed_any_more_when_it_has_stopped() -> None:
    fed, failed, turn = list[int](), list[BaseException](), asyncio.Event()

    async def feed_slowly() -> None:
        try:
            await turn.wait()
        finally:
            await asyncio.sleep(0)  # as one that has a change in hand
            fed.append(1)

    feed = FollowedMetadata(cast(Any, None), feed_slowly, failed.append)
    feed.follow()
    await asyncio.sleep(0)
    await awaited(feed.stop)
    assert (fed, failed) == ([1], [])


async def test_one_that_never_followed_stops_at_once() -> None:
    await awaited(partial(FollowedMetadata.stop, FollowedMetadata(cast(Any, None), cast(Any, None), print)))
