"""The controller's mutation quota: how fast one client may have partitions created and deleted (CT-20, KIP-599).

Each client id has a token bucket. `controller.mutation.rate` partitions per second flow into it, at most `burst` stay
in it. A mutation is let through as long as the bucket is not in debt, and may put it into debt: so a topic of any size
can be created, and the rate holds on average. It is strict: what comes while there is debt is refused, and costs
nothing. Off unless a rate is set.

Time is an argument, in milliseconds of a clock that never goes back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from raft.core.errors import ErrorCode, ProtocolError

BURST_SECONDS_DEFAULT: Final = 11
"""A client that rests saves up for so long: Kafka's controller.quota.window.num, windows of one second."""

CLIENTS_MAX: Final = 10_000
"""So many clients are remembered. The one that was seen least lately is forgotten: its bucket is likely full again."""

ChargeMutations = Callable[[int], None]
"""Called with a number of partitions that are about to be created or deleted; raises ProtocolError to refuse them."""


def no_quota(mutations: int) -> None:
    """Let any number of mutations through."""


class MutationQuota:
    """The token bucket of one client. `partitions_per_second` and `burst` (partitions) must be above 0."""

    __slots__ = ("_burst_ms", "_ms_per_mutation", "_out_of_debt_ms")

    def __init__(self, partitions_per_second: float, burst: float) -> None:
        check_rate(partitions_per_second, burst)
        self._ms_per_mutation = 1_000 / partitions_per_second
        self._burst_ms = burst * self._ms_per_mutation
        self._out_of_debt_ms = -math.inf
        """When the bucket is, or was, neither in debt nor filled: all there is to know of it."""

    def check(self, now_ms: int, mutations: int) -> None:
        """Charge `mutations` partitions; raises ProtocolError(THROTTLING_QUOTA_EXCEEDED) while there is debt."""
        # It fills up to the burst and not more, however long ago that was.
        out_of_debt_ms = max(self._out_of_debt_ms, now_ms - self._burst_ms)
        if out_of_debt_ms > now_ms:
            raise ProtocolError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"this client creates and deletes more than {1_000 / self._ms_per_mutation:g} partitions per second"
                f" (controller.mutation.rate); try the other {mutations} again in"
                f" {math.ceil(out_of_debt_ms - now_ms)} ms",
            )
        self._out_of_debt_ms = out_of_debt_ms + mutations * self._ms_per_mutation


class MutationQuotas:
    """The token buckets of all clients."""

    def __init__(self, partitions_per_second: float | None = None, burst: float | None = None) -> None:
        """`partitions_per_second`: None is no quota. `burst`: partitions; None is what flows in in 11 seconds.

        Raises ValueError unless they are above 0.
        """
        if burst is None and partitions_per_second is not None:
            burst = BURST_SECONDS_DEFAULT * partitions_per_second
        self._limit = None if partitions_per_second is None or burst is None else (partitions_per_second, burst)
        if self._limit is not None:
            check_rate(*self._limit)
        self._by_client: OrderedDict[str, MutationQuota] = OrderedDict()

    def __len__(self) -> int:
        """How many clients are remembered."""
        return len(self._by_client)

    def check(self, client_id: str, now_ms: int, mutations: int) -> None:
        """Charge a client for `mutations` partitions; raises ProtocolError(THROTTLING_QUOTA_EXCEEDED)."""
        if self._limit is None:
            return
        quota = self._by_client.get(client_id)
        if quota is None:
            quota = self._by_client[client_id] = MutationQuota(*self._limit)
            if len(self._by_client) > CLIENTS_MAX:
                self._by_client.popitem(last=False)
        self._by_client.move_to_end(client_id)
        quota.check(now_ms, mutations)


def check_rate(partitions_per_second: float, burst: float) -> None:
    """Raise ValueError unless a quota can be that."""
    if not (0 < partitions_per_second < math.inf and 0 < burst < math.inf):
        raise ValueError(
            f"a mutation quota of {partitions_per_second} partitions per second with a burst of {burst} is none;"
            " both must be finite and above 0, or leave the rate out for no quota"
        )
