"""The controller's ports on a simulated node."""

from __future__ import annotations

from unittest import mock

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller import controller
from kraftlog.controller.controller import Controller
from kraftlog.controller.rules import pages
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.world import NOTHING
from kraftlog.sim.quorum.node import controller_host
from kraftlog.sim.quorum.node.controller_host import small_pages
from kraftlog.sim.quorum.parameters import draw
from kraftlog.sim.quorum.users.broker import BrokerState
from kraftlog.sim.quorum.world import World
from kraftpb.v1.admin_pb2 import Operation, OperationResult


def make_world(brokers: int = 3) -> World:
    overrides = Overrides(sizes={"brokers": brokers, "voters": 3, "observers": 1}, fault_kinds=())
    return World(draw(1, overrides), marks=Marks())


def controllers(world: World) -> dict[int, Controller]:
    """Those that there are, by node."""
    found = {}
    for machine in world.machines.values():
        if machine.process is not None and machine.process.controller_host.controller is not None:
            found[machine.node_id] = machine.process.controller_host.controller
    return found


def test_an_append_of_the_controllers_is_settled_once_and_others_go_to_the_register_service() -> None:
    world = make_world()
    world.start_all()
    world.run_for(10_000_000)
    leader = world.leader()
    assert leader is not None and leader.process is not None
    host, settled = leader.process.controller_host, list[ApiError | None]()
    assert host._log is not None
    append_id = leader.process.shell.new_id() + 1
    host._log.prepare_append(leader.process.shell.replica.epoch, b"", 1, settled.append)
    assert append_id in host._log.appends and settled == []
    assert not host.append_completed(append_id + 1, None)
    assert host.append_completed(append_id, None)
    assert settled == [None]
    assert not host.append_completed(append_id, None)


def test_brokers_register_and_are_unfenced_over_the_network() -> None:
    world = make_world()
    with small_pages(world):
        world.start_all()
        for broker in world.brokers:
            broker.start()
            broker.quiesce()
        world.run_for(30_000_000)
    up = {broker.broker_id: broker.epoch for broker in world.brokers if broker.state is BrokerState.UP}
    assert len(up) >= 2, "the seed ends too many of them"
    registered = world.metadata.brokers
    assert {broker_id: registered[broker_id].epoch for broker_id in up} == up
    assert all(registered[broker_id].is_active for broker_id in up)
    assert world.metadata.features["metadata.version"] > 0
    leader = world.leader()
    assert leader is not None and len(controllers(world)) == 4
    assert [node_id for node_id, one in controllers(world).items() if one.is_active] == [leader.node_id]


def test_a_bug_that_the_controller_finds_in_itself_is_a_violation() -> None:
    world = make_world()
    world.start_all()
    world.run_for(10_000_000)
    leader = world.leader()
    assert leader is not None and leader.process is not None
    answers: list[OperationResult] = []
    with mock.patch.object(controller, "decide", side_effect=ZeroDivisionError):
        leader.process.controller_host.handle(Operation(), lambda result, _: answers.append(result))
        with pytest.raises(Violation, match="the controller says: an operation met a bug") as found:
            world.run_for(1_000_000)
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_pages_are_small_for_so_long() -> None:
    before = pages.PAGE_PARTITIONS
    with small_pages(make_world()):
        assert pages.PAGE_PARTITIONS == controller_host.PAGE_PARTITIONS < before
    assert before == pages.PAGE_PARTITIONS


def test_without_brokers_there_is_no_controller() -> None:
    world = World(draw(1, NOTHING), marks=Marks())
    with small_pages(world):
        world.start_all()
        assert pages.PAGE_PARTITIONS > controller_host.PAGE_PARTITIONS
    assert controllers(world) == {}
    assert world.brokers == [] and world.administrator is None
