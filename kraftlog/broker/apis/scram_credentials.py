"""DescribeUserScramCredentials: no user has a password here (KIP-554, DB-111).

`kafka-configs --describe --entity-type users` sends it after DescribeClientQuotas, and fails without an answer.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps


class DescribeUserScramCredentialsApi:
    """Handles DescribeUserScramCredentials."""

    def __init__(self, services: BrokerServices) -> None:
        """Uses none of the services."""

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without users if all are asked for, and with an error for each named one, as a Kafka that has none."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeUserScramCredentialsRequest, request.body)
        results: list[DescribeUserScramCredentialsResult] = []
        named: Counter[str] = Counter()
        for user in body.users or ():
            named[user.name] += 1
            yield
        for name, times in named.items():
            code, reason = (
                ErrorCode.RESOURCE_NOT_FOUND,
                "this cluster has no SCRAM credentials: no client authenticates",
            )
            if times > 1:
                code, reason = ErrorCode.DUPLICATE_RESOURCE, "this user is in the request more than once"
            results.append(DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=reason))
            yield
        reply(DescribeUserScramCredentialsResponse(error_message=None, results=tuple(results)))
