"""DescribeAcls from this broker's applied metadata; CreateAcls and DeleteAcls at the controller (KIP-140, KIP-290).

Entries are stored, but not enforced, because there is no authentication yet.
"""

from __future__ import annotations

from typing import cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.refusals import message_of, text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.controller_channel import TIMEOUT_MS_DEFAULT
from kraftlog.kafka.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kraftlog.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kraftlog.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord
from statemachine.query.acls import describe_acls


class DescribeAclsApi:
    """Handles DescribeAcls."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeAclsRequest, request.body)
        resources: dict[tuple[int, str, int], list[AclDescription]] = {}
        try:
            for entry in list(describe_acls(self._cluster.metadata, _filter(body))):
                yield
                resource = (entry.resource_type, entry.resource_name, entry.pattern_type)
                resources.setdefault(resource, []).append(
                    AclDescription(
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission_type,
                    )
                )
        except ApiError as error:
            reply(DescribeAclsResponse(error_code=error.code, error_message=text_of(error), resources=()))
            return
        reply(
            DescribeAclsResponse(
                error_code=ErrorCode.NONE,
                error_message=None,
                resources=tuple(
                    DescribeAclsResource(resource_type=of, resource_name=name, pattern_type=pattern, acls=tuple(acls))
                    for (of, name, pattern), acls in resources.items()
                ),
            )
        )


class CreateAclsApi:
    """Handles CreateAcls."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered, for each entry in the order of the request."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(CreateAclsRequest, request.body)

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            results: list[AclCreationResult] = []
            if isinstance(result, ApiError):
                refused = AclCreationResult(error_code=result.code, error_message=text_of(result))
                results = [refused] * len(body.creations)
            else:
                for made in result.create_acls.results:
                    results.append(AclCreationResult(error_code=made.error_code, error_message=message_of(made)))
                    yield
            reply(CreateAclsResponse(results=tuple(results)))

        creation = admin_pb2.CreateAclsRequest()
        for entry in body.creations:
            creation.entries.add(
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.resource_pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
            yield
        operation = admin_pb2.Operation(client_id=request.context.client_id, create_acls=creation)
        self._controller.submit(
            operation, TIMEOUT_MS_DEFAULT, lambda result: request.slices.run(answer(result)), retry_unknown=True
        )


class DeleteAclsApi:
    """Handles DeleteAcls."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered, with the entries that each filter deleted."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DeleteAclsRequest, request.body)

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            results: list[DeleteAclsFilterResult] = []
            if isinstance(result, ApiError):
                refused = DeleteAclsFilterResult(
                    error_code=result.code, error_message=text_of(result), matching_acls=()
                )
                results = [refused] * len(body.filters)
            else:
                for found in result.delete_acls.filters:
                    deleted = []
                    for entry in found.deleted:
                        deleted.append(_deleted(entry))
                        yield
                    results.append(
                        DeleteAclsFilterResult(
                            error_code=found.error_code, error_message=message_of(found), matching_acls=tuple(deleted)
                        )
                    )
                    yield
            reply(DeleteAclsResponse(filter_results=tuple(results)))

        deletion = admin_pb2.DeleteAclsRequest()
        for body_filter in body.filters:
            deletion.filters.append(_filter(body_filter))
            yield
        operation = admin_pb2.Operation(client_id=request.context.client_id, delete_acls=deletion)
        self._controller.submit(operation, TIMEOUT_MS_DEFAULT, lambda result: request.slices.run(answer(result)))


def _filter(body_filter: DescribeAclsRequest | DeleteAclsFilter) -> admin_pb2.AclFilter:
    """Return the controller's form of a filter. Kafka's numbers for "any" are the same there."""
    return admin_pb2.AclFilter(
        resource_type=body_filter.resource_type_filter,
        resource_name=body_filter.resource_name_filter,
        pattern_type=body_filter.pattern_type_filter,
        principal=body_filter.principal_filter,
        host=body_filter.host_filter,
        operation=body_filter.operation,
        permission_type=body_filter.permission_type,
    )


def _deleted(entry: AccessControlEntryRecord) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
