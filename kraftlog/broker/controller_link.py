"""The broker's own way to the controller, on an event loop: registrations, heartbeats, directories of replicas."""

from __future__ import annotations

from collections.abc import Callable

from kraftbase.errors import ApiError
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.awaited_answers import AwaitedAnswers
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from raft.rpc import codec


class ControllerLink:
    """`ControllerPort` over an admin client, which stays its owner's. Close it."""

    def __init__(self, client: AdminClient, on_fatal: Callable[[BaseException], None]) -> None:
        """`on_fatal` is told of a bug in the client."""
        self._client = client
        self._answers = AwaitedAnswers(on_fatal)

    async def close(self) -> None:
        """Give up what is not answered, and call nobody back."""
        await self._answers.close()

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation. It may take the client's timeout if that is less."""
        asking = self._execute(operation, min(timeout_ms, self._client.timeout_ms), retry_unknown)
        self._answers.begin(asking, on_result)

    async def _execute(self, operation: Operation, timeout_ms: int, retry_unknown: bool) -> OperationResult:
        result = await self._client.execute(operation, timeout_ms=timeout_ms, retry_unknown=retry_unknown)
        if result.error_code:
            raise ApiError(codec.error_from_proto(result.error_code), result.error_message)
        return result

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        """Ask for the id of the cluster."""
        self._answers.begin(self._client.cluster_id(), on_found)
