"""RegisterController (CT-37): what a controller registers, from which metadata.version on, and every error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.brokers import register_controller
from kraftpb.v1.admin_pb2 import RegisterControllerRequest
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, FeatureLevelRecord, MetadataRecord, RegisterControllerRecord
from statemachine.words.features import CONTROLLER_REGISTRATION, ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from tests.statemachine.builders import all_features, an_id, feature
from tests.statemachine.states import Metadata, metadata


def controller(controller_id: int, port: int = 9093) -> RegisterControllerRequest:
    return RegisterControllerRequest(
        controller_id=controller_id,
        incarnation_id=an_id(600 + controller_id),
        end_points=[BrokerEndpoint(name="CONTROLLER", host="localhost", port=port)],
        features=all_features(),
    )


def registered(state: Metadata, request: RegisterControllerRequest) -> list[MetadataRecord]:
    records, _ = register_controller(state, request)
    state.append(records)
    return records


def test_a_controller_says_where_it_is_and_what_it_supports() -> None:
    state = metadata()
    request = controller(1)
    assert len(registered(state, request)) == 1
    assert state.controllers() == {
        1: RegisterControllerRecord(
            controller_id=1,
            incarnation_id=an_id(601),
            end_points=request.end_points,
            features=request.features,
        )
    }


def test_what_is_known_already_makes_no_record_and_what_is_new_replaces_it() -> None:
    state = metadata()
    registered(state, controller(1))
    registered(state, controller(2))
    assert registered(state, controller(1)) == []
    assert len(registered(state, controller(1, port=9999))) == 1
    assert {id_: found.end_points[0].port for id_, found in state.controllers().items()} == {1: 9999, 2: 9093}


def test_controllers_register_from_3_7_on() -> None:
    assert registered(metadata(version=CONTROLLER_REGISTRATION), controller(1))
    with pytest.raises(ApiError) as caught:
        register_controller(metadata(version=CONTROLLER_REGISTRATION - 1), controller(1))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "from metadata.version 15 (3.7-IV0) on" in caught.value.args[0]
    assert "the cluster's is 14 (3.6-IV2); upgrade it first" in caught.value.args[0]


def set_features(*features: object) -> Callable[[RegisterControllerRequest], None]:
    def spoil(request: RegisterControllerRequest) -> None:
        del request.features[:]
        request.features.extend(features)  # type: ignore[arg-type]

    return spoil


def set_to(field: str, value: object) -> Callable[[RegisterControllerRequest], None]:
    return lambda request: setattr(request, field, value)


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (set_to("controller_id", -1), ErrorCode.INVALID_REQUEST, "the controller id is -1"),
        (set_to("incarnation_id", bytes(16)), ErrorCode.INVALID_REQUEST, "incarnation id of controller 1"),
        (set_to("incarnation_id", b"short"), ErrorCode.INVALID_REQUEST, "random uuid, 16 bytes"),
        (
            lambda request: request.ClearField("end_points"),
            ErrorCode.INVALID_REGISTRATION,
            "controller 1 has 0 listeners",
        ),
        (
            lambda request: request.end_points.add(name="X", host="", port=1),
            ErrorCode.INVALID_REGISTRATION,
            "listener 'X' of controller 1",
        ),
        (
            lambda request: request.features.append(feature(METADATA_VERSION, 7, 29)),
            ErrorCode.INVALID_REGISTRATION,
            "controller 1 gives feature 'metadata.version' more than once",
        ),
        (set_features(), ErrorCode.UNSUPPORTED_VERSION, "controller 1 does not give the levels of metadata.version"),
        (
            set_features(feature(METADATA_VERSION, 7, 19)),
            ErrorCode.UNSUPPORTED_VERSION,
            "'metadata.version' at level 20, and controller 1 supports levels 7 to 19",
        ),
        (
            set_features(feature(METADATA_VERSION, 7, 29)),
            ErrorCode.UNSUPPORTED_VERSION,
            "'eligible.leader.replicas.version' at level 1, and controller 1 supports none of it",
        ),
    ],
)
def test_each_error_has_kafkas_name_says_what_is_wrong_and_writes_nothing(
    spoil: Callable[[RegisterControllerRequest], None], code: ErrorCode, words: str
) -> None:
    level = MetadataRecord(feature_level=FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, level=1))
    state = metadata(level, version=20)
    request = controller(1)
    spoil(request)
    with pytest.raises(ApiError) as caught:
        register_controller(state, request)
    assert caught.value.code is code
    assert words in caught.value.args[0]
    assert state.controllers() == {}
