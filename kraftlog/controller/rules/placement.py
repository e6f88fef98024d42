"""Which brokers get the replicas of new partitions: striped over racks, and over the brokers of each rack.

Kafka's idea (StripedReplicaPlacer): racks and the brokers of each in a random order; the leader of each next partition
is in the next rack, and there the next broker; the followers are in the racks after it. Brokers without a rack have one
together. Two things are stricter here. Leaders are spread over all active brokers to within one, whatever the racks,
and each time around a leader gets other followers, so that the load of a broker that fails is spread over all others.
And fenced brokers come last: none is used while an active one is left, not even to reach one rack more (CT-32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from statemachine.metadata.state import MetadataState


@dataclass(frozen=True, slots=True)
class PlacementBroker:
    """The facts about a broker that placement depends on."""

    is_active: bool
    """Neither fenced nor shutting down."""
    directory: bytes | None = None
    """Its log directory if it has exactly one."""
    rack: str | None = None
    """None: it has named none. All such brokers count as one rack."""


def placement_brokers(state: MetadataState) -> dict[int, PlacementBroker]:
    """All registered brokers by id, ascending."""
    return {
        broker_id: PlacementBroker(
            not (broker.fenced or broker.in_controlled_shutdown),
            broker.log_dirs[0] if len(broker.log_dirs) == 1 else None,
            broker.rack if broker.HasField("rack") else None,
        )
        for broker_id, broker in state.brokers().items()
    }


class _Rack(NamedTuple):
    """The brokers of a rack, each kind in rotation."""

    active: list[int]
    fenced: list[int]


Source = tuple[Sequence[int], int]
"""Where a follower is chosen: some brokers, and its distance there from the leader's position in its own rack."""


class ReplicaPlacer:
    """Places one partition after another. In each round every active broker leads one of them."""

    def __init__(self, brokers: Mapping[int, PlacementBroker], random: Random) -> None:
        self._num_brokers = len(brokers)
        self._racks = _shuffled_racks(brokers, random)
        self._active = [rack.active for rack in self._racks if rack.active]
        leaders = [
            (own, index)
            for index in range(max(map(len, self._active), default=0))
            for own, rack in enumerate(self._active)
            if index < len(rack)
        ]
        # With racks of different sizes the first leaders are not a random choice of brokers.
        start = random.randrange(len(leaders)) if leaders else 0
        self._leaders = leaders[start:] + leaders[:start]
        """For each broker, rack by rack, the index of its active rack, and its index in the rack."""
        self._turn = 0

    def place(self, num_partitions: int, replication_factor: int) -> list[list[int]]:
        """The replicas of this many partitions, the preferred leader first: an active broker.

        Raises ApiError(INVALID_REPLICATION_FACTOR) if there are not enough brokers, or none that is active.
        """
        self._check(replication_factor)
        active, leaders = self._active, self._leaders
        plans: dict[tuple[int, int], list[Source]] = {}
        placed = []
        for turn in range(self._turn, self._turn + num_partitions):
            round_number, position = divmod(turn, len(leaders))
            own, index = leaders[position]
            plan = plans.get((own, round_number))
            if plan is None:
                plan = plans[own, round_number] = self._plan(own, round_number, replication_factor - 1)
            placed.append([active[own][index], *[brokers[(index + on) % len(brokers)] for brokers, on in plan]])
        self._turn += num_partitions
        return placed

    def _check(self, replication_factor: int) -> None:
        if replication_factor > self._num_brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a replication factor of {replication_factor} needs as many brokers, and {self._num_brokers} are"
                " registered; lower it or register more brokers",
            )
        if not self._leaders:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced or shutting down; start one and try again"
            )

    def _plan(self, own: int, round_number: int, num_followers: int) -> list[Source]:
        """The followers of the leaders in rack `own` in one round.

        All its leaders find them at the same distance, so they share the brokers of another rack evenly.
        """
        plan = list(islice(self._active_sources(own, round_number, num_followers), num_followers))
        if len(plan) < num_followers:
            plan += islice(self._fenced_sources(round_number), num_followers - len(plan))
        return plan

    # Consider racks a with brokers 1 and 2, b with 3 and 4, and c with 5 and 6, in this order after shuffling. The
    # first 14 partitions with replication factor 3, each with its leader first:
    #
    #     round 0   1 3 5   3 5 1   5 1 3   2 4 6   4 6 2   6 2 4
    #     round 1   1 5 3   3 1 5   5 3 1   2 6 4   4 2 6   6 4 2
    #     round 2   1 4 6   3 6 2   ...
    #
    # In each round every broker leads once, and each partition has a replica in every rack. In round 1 the other racks
    # come in another order, so that another broker is the next in line after the leader. In round 2 all orders were
    # used, and broker 1 gets other brokers of the same racks: if it fails, 3, 4, 5 and 6 each take over a part of what
    # it led.
    #
    # Now let brokers 5 and 6 be fenced. Then the first partition is 1 3 2: both replicas of rack a are on active
    # brokers, and rack c has none. Kafka would place it on 1, 3 and 5, to have three racks, and the partition would be
    # one replica short.
    def _active_sources(self, own: int, round_number: int, limit: int) -> Iterator[Source]:
        """Active followers, of which `limit` are needed: one from each other rack, one from their own, then again.

        The other racks are in another order each round; when all orders were used, it is other brokers in them.
        """
        racks = self._active
        others = len(racks) - 1
        order = [(own + 1 + (round_number + step) % others) % len(racks) for step in range(min(others, limit))]
        shift = round_number // max(others, 1)
        left_in_own = len(racks[own]) - 1
        for cycle in range(limit):
            for rack in order:
                if cycle < len(racks[rack]):
                    yield racks[rack], shift + cycle
            if cycle < left_in_own:
                yield racks[own], 1 + (round_number + cycle) % left_in_own

    def _fenced_sources(self, round_number: int) -> Iterator[Source]:
        """Fenced followers, when every active broker has a replica: first from the racks that have the fewest."""
        shift = round_number // len(self._racks)
        for depth in range(max(len(rack.active) + len(rack.fenced) for rack in self._racks)):
            level = [rack for rack in self._racks if 0 <= depth - len(rack.active) < len(rack.fenced)]
            for step in range(len(level)):
                rack = level[(round_number + step) % len(level)]
                yield rack.fenced, depth - len(rack.active) + shift


def _shuffled_racks(brokers: Mapping[int, PlacementBroker], random: Random) -> list[_Rack]:
    racks: dict[str | None, _Rack] = {}
    for broker_id in random.sample(list(brokers), len(brokers)):
        broker = brokers[broker_id]
        rack = racks.setdefault(broker.rack, _Rack([], []))
        (rack.active if broker.is_active else rack.fenced).append(broker_id)
    return list(racks.values())
