"""InitProducerId: an id for an idempotent producer (DB-118). Transactional producers are refused: no coordinator
exists.

While the controller allocates no ids, a producer gets COORDINATOR_LOAD_IN_PROGRESS, as from a Kafka: every client then
retries, but old clients do not retry after REQUEST_TIMED_OUT. A Kafka answers at once. Here the producer waits for the
answer to the request for a block, for a limited time (`RequestBlock`), because the block usually arrives.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kraftlog.broker.apis.coordinators import NO_TRANSACTIONS
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kraftlog.network.requests import ClientRequest, Reply


class InitProducerIdApi:
    """Handles InitProducerId."""

    def __init__(self, services: BrokerServices) -> None:
        self._producer_ids = services.producer_ids

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when there is an id: a new one each time, with epoch 0, whatever id the producer had before."""
        body = cast(InitProducerIdRequest, request.body)
        # One without the other has no meaning (KIP-360).
        is_half = (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH)
        if is_half or body.transactional_id == "":
            reply(_refusal(ErrorCode.INVALID_REQUEST))
        elif body.transactional_id is not None:
            reply(_refusal(NO_TRANSACTIONS))
        else:
            self._producer_ids.allocate(partial(_answer, reply))


def _answer(reply: Reply, producer_id: int, error: ApiError | None) -> None:
    if error is None:
        reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
    else:
        reply(_refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
