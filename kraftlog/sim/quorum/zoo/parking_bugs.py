"""Bugs of parking: the leader holds fetches although it has something to answer (KIP-1166)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from kraftbase.types import Offset
from kraftlog.sim.engine.mutation import instead, mutation
from raft.core import fetch_answers, following, high_watermark, serving
from raft.core.environment import Environment
from raft.core.messages import FetchRequest, FetchResponse
from raft.core.output import Output
from raft.core.purgatory import ParkedFetch
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader


@mutation("the high watermark releases no fetch", "KAFKA-14145")
def nobody_released() -> list[Any]:
    """A replica learns of a new high watermark only when its fetch's wait has ended."""
    return [instead(high_watermark, "release_behind", lambda environment, replica, output, leader: None)]


@mutation("no fetch names a high watermark", "PK-05")
def never_sent() -> list[Any]:
    """The fetch has version 18, but the field has its default, which is above every high watermark."""
    fetch_request = following._fetch_request

    def silent(environment: Environment, replica: ReplicaState) -> FetchRequest:
        return replace(fetch_request(environment, replica), high_watermark=HIGH_WATERMARK_NOT_SENT)

    return [instead(following, "_fetch_request", silent)]


@mutation("a parked fetch is compared with an old high watermark", "PK-03")
def compared_with_old() -> list[Any]:
    """The high watermark is read once and never again, so the comparison always has its first result."""
    fetch_response = fetch_answers.fetch_response
    read: dict[int, tuple[FetchRequest, Offset]] = {}

    def reading_once(
        environment: Environment, replica: ReplicaState, leader: Leader, request: FetchRequest
    ) -> FetchResponse:
        read.setdefault(id(request), (request, leader.high_watermark))
        return fetch_response(environment, replica, leader, request)

    def release_behind(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
        behind = leader.purgatory.take_if(lambda request: request.high_watermark < read[id(request)][1])
        fetch_answers._answer(environment, replica, output, leader, behind)

    return [
        instead(serving, "fetch_response", reading_once),
        instead(fetch_answers, "fetch_response", reading_once),
        instead(high_watermark, "release_behind", release_behind),
    ]


@mutation("a released fetch is parked once more", "PK-07")
def parked_twice() -> list[Any]:
    """The fetch's wait has ended without news, and the fetch waits again."""

    def answer(
        environment: Environment, replica: ReplicaState, output: Output, leader: Leader, fetches: Sequence[ParkedFetch]
    ) -> None:
        for fetch in fetches:
            response = fetch_answers.fetch_response(environment, replica, leader, fetch.request)
            records = fetch_answers.records_for(replica.log, fetch.request, response)
            if fetch_answers.is_answered_at_once(fetch.request, response, records):
                output.reply(fetch.request_id, response, records)
            else:
                leader.purgatory.park(replace(fetch, deadline_ms=environment.now_ms + fetch.request.max_wait_ms))

    return [instead(fetch_answers, "_answer", answer)]
