"""Faults of the network. Links go one way; a message sent before a cut still arrives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, Final

from kraftlog.sim.quorum.faults.fault import any_machine, duration_us, fault
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.users.client import FIRST_CLIENT_ID
from kraftlog.sim.quorum.world import World

ELECTION_MS: Final = 5_000
"""How long a leader must be cut off until another one is elected."""


def _cut(world: World, random: Random, links: Iterable[tuple[int, int]], low_ms: int = 100) -> None:
    cut = [link for link in links if link[0] != link[1]]
    world.network.cut_links(cut)
    world.event_queue.after(duration_us(random, low_ms), lambda: world.network.heal_links(cut))


def _both_ways(some: Iterable[int], others: Iterable[int]) -> list[tuple[int, int]]:
    pairs = list(product(some, others))
    return [*pairs, *((other, one) for one, other in pairs)]


def _two(world: World, random: Random) -> tuple[int, int]:
    one, other = random.sample(sorted(world.machines), 2)
    return one, other


@fault("network: a link is cut one way")
def cut_one_way(world: World, random: Random) -> str | None:
    """Lose messages from one node to another, but not the answers."""
    if len(world.machines) < 2:
        return None
    link = _two(world, random)
    _cut(world, random, [link])
    return f"{link[0]} to {link[1]}"


@fault("network: a link is cut")
def cut_both_ways(world: World, random: Random) -> str | None:
    """Lose all messages between two nodes."""
    if len(world.machines) < 2:
        return None
    one, other = _two(world, random)
    _cut(world, random, _both_ways([one], [other]))
    return f"{one} and {other}"


@fault("network: a node is isolated")
def isolate(world: World, random: Random) -> str | None:
    """Lose all messages between one node and all others."""
    node_id = any_machine(world, random).node_id
    _cut(world, random, _both_ways([node_id], world.machines))
    return str(node_id)


@fault("network: the leader is isolated")
def isolate_leader(world: World, random: Random) -> str | None:
    """Isolate the leader. It still believes that it leads, and its clients still reach it."""
    leader = world.leader()
    if leader is None:
        return None
    _cut(world, random, _both_ways([leader.node_id], world.machines))
    return str(leader.node_id)


@fault("network: a node hears nothing")
def deafen(world: World, random: Random) -> str | None:
    """Lose every message to a node. Its own messages arrive."""
    node_id = any_machine(world, random).node_id
    _cut(world, random, product(world.machines, [node_id]))
    return str(node_id)


@fault("network: a node is not heard")
def silence(world: World, random: Random) -> str | None:
    """Lose every message from a node. It receives all messages."""
    node_id = any_machine(world, random).node_id
    _cut(world, random, product([node_id], world.machines))
    return str(node_id)


@fault("network: split in two")
def split(world: World, random: Random) -> str | None:
    """Split the nodes into two groups that do not reach each other."""
    node_ids = random.sample(sorted(world.machines), len(world.machines))
    at = random.randint(0, len(node_ids))
    _cut(world, random, _both_ways(node_ids[:at], node_ids[at:]))
    return f"{sorted(node_ids[:at])} and {sorted(node_ids[at:])}"


@fault("network: two groups and a bridge")
def bridge(world: World, random: Random) -> str | None:
    """Split the nodes into two groups; only one node reaches both."""
    node_ids = random.sample(sorted(world.machines), len(world.machines))
    if len(node_ids) < 3:
        return None
    middle = 1 + len(node_ids[1:]) // 2
    _cut(world, random, _both_ways(node_ids[1:middle], node_ids[middle:]))
    return f"{node_ids[0]} between {sorted(node_ids[1:middle])} and {sorted(node_ids[middle:])}"


@fault("network: a link flaps")
def flap(world: World, random: Random) -> str | None:
    """Cut and restore a link repeatedly."""
    if len(world.machines) < 2:
        return None
    links = _both_ways(*([node_id] for node_id in _two(world, random)))
    for _ in range(10):
        at_us = duration_us(random, 0, 10_000)
        world.event_queue.after(at_us, lambda: world.network.cut_links(links))
        world.event_queue.after(at_us + duration_us(random, 10, 1_500), lambda: world.network.heal_links(links))
    world.event_queue.after(12_000_000, lambda: world.network.heal_links(links))
    return str(links[0])


@fault("network: a link is clogged")
def clog(world: World, random: Random) -> str | None:
    """Hold back the messages of a link, then deliver them all at once."""
    if len(world.machines) < 2:
        return None
    link = _two(world, random)
    world.network.clogged_until_us[link] = world.event_queue.now_us + duration_us(random, 100, 5_000)
    return f"{link[0]} to {link[1]}"


def _refuse(world: World, link: tuple[int, int], for_us: int) -> None:
    """Refuse new connections over a link, and break the existing ones."""
    world.network.refused_until_us[link] = world.event_queue.now_us + for_us
    target = world.machines[link[1]].process
    if target is not None:
        target.break_connections_of(link[0])


@fault("network: connections are refused for a moment")
def refuse(world: World, random: Random) -> str | None:
    """Refuse connections on some links although processes listen, too briefly for followers to abandon a leader."""
    if len(world.machines) < 2:
        return None
    links = [_two(world, random) for _ in range(random.randint(1, 4))]
    for link in links:
        _refuse(world, link, duration_us(random, 1, 90))
    return ", ".join(f"{source} to {destination}" for source, destination in links)


@fault("network: a firewall refuses connections")
def refuse_for_long(world: World, random: Random) -> str | None:
    """Refuse one node's connections to another for so long that the node concludes that the other is down."""
    if len(world.machines) < 2:
        return None
    link = _two(world, random)
    _refuse(world, link, duration_us(random, 100, 5_000))
    return f"{link[0]} to {link[1]}"


@fault("network: clients are cut off")
def cut_clients_off(world: World, random: Random) -> str | None:
    """Lose all messages between one node and all clients."""
    node_id = any_machine(world, random).node_id
    clients = range(FIRST_CLIENT_ID, FIRST_CLIENT_ID + len(world.clients))
    _cut(world, random, _both_ways([node_id], clients))
    return str(node_id)


def _for_a_while(world: World, random: Random, **conditions: Any) -> str:
    before = world.network.conditions
    changed = replace(before, **conditions)
    world.network.conditions = changed

    def end() -> None:
        if world.network.conditions is changed:
            world.network.conditions = before

    world.event_queue.after(duration_us(random), end)
    return str(conditions)


@fault("network: many messages are lost")
def lose(world: World, random: Random) -> str | None:
    """Lose nearly every third message."""
    return _for_a_while(world, random, drop_rate=0.3)


@fault("network: many messages are repeated")
def repeat(world: World, random: Random) -> str | None:
    """Deliver every other message twice, the second time much later."""
    return _for_a_while(world, random, duplicate_rate=0.5)


@fault("network: messages overtake each other")
def overtake(world: World, random: Random) -> str | None:
    """Delay every third message, up to seconds."""
    return _for_a_while(world, random, late_rate=0.3, late_us_max=8_000_000)


@fault("network: everything is slow")
def slow(world: World, random: Random) -> str | None:
    """Make messages take as long as elections."""
    return _for_a_while(world, random, delay_us=(50_000, 900_000))


@fault("network: batches arrive damaged")
def corrupt(world: World, random: Random) -> str | None:
    """Flip a bit of the batches in every fifth answer."""
    world.messages.corrupt_rate = 0.2

    def end() -> None:
        world.messages.corrupt_rate = 0.0

    world.event_queue.after(duration_us(random), end)
    return "one in five"


@fault("network: pieces of snapshots arrive damaged")
def corrupt_pieces(world: World, random: Random) -> str | None:
    """Flip a bit in each of the next few snapshot pieces that are sent."""
    world.messages.pieces_to_corrupt = random.choice([1, 2, 5])
    return f"{world.messages.pieces_to_corrupt} of them"


@fault("network: cut off in the middle of a snapshot")
def cut_transfer(world: World, random: Random) -> str | None:
    """Cut the next node that fetches a snapshot piece off from the leader; mostly the others, too, which then elect."""

    def spring(source: SteppedProcess, leader: Machine) -> None:
        if random.random() < 0.8:
            _cut(world, random, _both_ways([leader.node_id], world.machines), ELECTION_MS)
        else:
            _cut(world, random, _both_ways([leader.node_id], [source.machine.node_id]))

    world.messages.transfer_ambush = spring
    return "the next requester"


def heal(world: World) -> None:
    """End every fault of the network."""
    world.network.heal()
    world.messages.heal()
