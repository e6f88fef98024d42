"""InitProducerId: an id for an idempotent producer (KIP-98). Transactions need a coordinator: there is none yet."""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.producer_ids import ProducerIds
from kraftlog.broker.requests import ClientRequest, Reply
from kraftlog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1


class InitProducerIdApi:
    """Handles InitProducerId."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when there is an id: a new one each time, with epoch 0, whatever the producer had before."""
        body = cast(InitProducerIdRequest, request.body)
        is_half_known = (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH)
        if body.transactional_id == "" or is_half_known:
            reply(_refusal(ErrorCode.INVALID_REQUEST))
        elif body.transactional_id is not None:
            reply(_refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._producer_ids.take(partial(_answer, reply))


def _answer(reply: Reply, producer_id: int, error: ApiError | None) -> None:
    if error is None:
        reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
    else:
        # Producers try again what the coordinator of transactions answers while it loads.
        reply(_refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
