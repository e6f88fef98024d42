"""The controller's mutation quota: how fast one client may have partitions created and deleted (CT-20, KIP-599).

Each client id has a token bucket. Tokens flow into it at the rate of the quota, up to `burst`. A mutation is accepted
as long as the bucket is not in debt, and may put it into debt: so a topic of any size can be created, and the rate
holds on average. It is strict: a mutation is refused while there is debt, and then costs nothing.

The rate is the client's own quota `controller_mutation_rate`, else that of <default> client ids, else the setting
`controller.mutation.rate`; with none of them there is no quota. The stored quota is looked up once for each client, and
again when a quota was altered.

Time is an argument, in milliseconds of a clock that never goes back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.names import quoted

BURST_SECONDS_DEFAULT: Final = 11
"""For how long an idle client collects tokens: Kafka's controller.quota.window.num, windows of one second."""

CLIENTS_MAX: Final = 10_000
"""At most this many clients are remembered. The least recently used one is forgotten: its bucket is likely full."""

ChargeMutations = Callable[[int], None]
"""Called with a number of partitions that are about to be created or deleted; raises ApiError to refuse them.

With 0, before their number is known, it refuses any number.
"""


def no_quota(mutations: int) -> None:
    """Accept any number of mutations."""


RATE_MIN: Final = 1e-6
"""Partitions per second: one in eleven days. A lower stored rate counts as this."""

RATE_MAX: Final = 1e9
"""A higher stored rate counts as this: no client is that fast."""

SETTING: Final = "the setting controller.mutation.rate"


class MutationLimit(NamedTuple):
    """How fast a client may change partitions, and where that is set."""

    partitions_per_second: float
    burst: float
    """How many partitions at once, after an idle time."""
    source: str = SETTING
    """The name, for messages, of the setting to raise if the rate is too low."""


def stored_limit(partitions_per_second: float, source: str) -> MutationLimit:
    """The limit of a stored quota: of that many partitions per second, with Kafka's burst."""
    rate = min(max(partitions_per_second, RATE_MIN), RATE_MAX)
    return MutationLimit(rate, BURST_SECONDS_DEFAULT * rate, source)


class MutationQuota:
    """The token bucket of one client."""

    __slots__ = ("_client_id", "_limit", "_out_of_debt_ms")

    def __init__(self, client_id: str, limit: MutationLimit) -> None:
        """Raises ValueError unless rate and burst of `limit` are finite and above 0."""
        check_rate(limit.partitions_per_second, limit.burst)
        self._client_id = client_id
        self._limit = limit
        self._out_of_debt_ms = -math.inf
        """When the bucket is, or was, neither in debt nor filled: its whole state."""

    def change(self, limit: MutationLimit, now_ms: int) -> None:
        """Continue with another limit; the bucket keeps its debt, in partitions. Raises ValueError as above."""
        check_rate(limit.partitions_per_second, limit.burst)
        # A bucket that is in debt until second 104 at second 100, with 2 partitions per second, owes 8 partitions. With
        # 4 per second it lasts until second 102.
        ratio = self._limit.partitions_per_second / limit.partitions_per_second
        self._out_of_debt_ms = now_ms + (self._out_of_debt_ms - now_ms) * ratio
        self._limit = limit

    def check(self, now_ms: int, mutations: int, owed: int = 0) -> None:
        """Raise ApiError(THROTTLING_QUOTA_EXCEEDED) while there is debt, `owed` partitions counted as charged.

        `mutations` is how many are asked for; 0: that is not known yet.
        """
        rate, _, source = self._limit
        out_of_debt_ms = self._after(now_ms, owed)
        if out_of_debt_ms > now_ms:
            client = f"client {quoted(self._client_id)}" if self._client_id else "a client without an id"
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{client} creates and deletes more than {rate:g} partitions per second ({source}); try"
                f" {f'the other {mutations} ' if mutations else ''}again in {math.ceil(out_of_debt_ms - now_ms)} ms, or"
                " have the quota raised",
            )

    def charge(self, now_ms: int, mutations: int) -> None:
        """Take `mutations` partitions out of the bucket."""
        self._out_of_debt_ms = self._after(now_ms, mutations)

    # Consider a rate of 2 partitions per second and a burst of 22. A partition costs 500 ms, a full bucket is 11 s. The
    # client has rested, and it is second 100, so the bucket counts as out of debt since second 89.
    #
    # A topic with 30 partitions comes. There is no debt, so it is accepted, and 89 + 15 = 104: the bucket is in debt
    # until second 104. At second 101 a topic with one partition is refused: try again in 3 s. At second 104 it is
    # accepted, and the debt lasts until 104.5. At second 130 the bucket is full again and no more than full: out of
    # debt since second 119.
    #
    # Within one request what was accepted counts although nothing is charged yet. Topics of 15, 15 and 1 partitions
    # at second 100: the first two are accepted, 89 + 7.5 + 7.5 = 104, and the third is refused.
    def _after(self, now_ms: int, mutations: int) -> float:
        rate, burst, _ = self._limit
        # It fills up only to the burst, however long ago that was.
        return max(self._out_of_debt_ms, now_ms - burst * 1_000 / rate) + mutations * 1_000 / rate


class Charge:
    """The charge of one operation of a client: nothing before `charge`, since the operation may write nothing."""

    def __init__(self, quota: MutationQuota, now_ms: int) -> None:
        self._quota = quota
        self._now_ms = now_ms
        self._owed = 0

    def __call__(self, mutations: int) -> None:
        """See `ChargeMutations`."""
        self._quota.check(self._now_ms, mutations, self._owed)
        self._owed += mutations

    def charge(self) -> None:
        """Charge the client: the operation is appended."""
        self._quota.charge(self._now_ms, self._owed)


@dataclass(slots=True)
class _Client:
    """The quota state of a client."""

    quota: MutationQuota | None
    """None: there is no limit."""
    alterations: int
    """After how many alterations of the stored quotas it was looked up."""


class MutationQuotas:
    """The token buckets of all clients."""

    def __init__(self, partitions_per_second: float | None = None, burst: float | None = None) -> None:
        """`partitions_per_second`: None is no quota. `burst`: partitions; None is 11 seconds of the rate.

        Raises ValueError unless they are above 0.
        """
        if burst is None and partitions_per_second is not None:
            burst = BURST_SECONDS_DEFAULT * partitions_per_second
        self._setting = None
        if partitions_per_second is not None and burst is not None:
            check_rate(partitions_per_second, burst)
            self._setting = MutationLimit(partitions_per_second, burst)
        self._by_client: OrderedDict[str, _Client] = OrderedDict()
        self._alterations = 0

    def __len__(self) -> int:
        """How many clients are remembered."""
        return len(self._by_client)

    def look_up_again(self) -> None:
        """Stored quotas were altered, or may have been by another controller."""
        self._alterations += 1

    def charge_of(self, client_id: str, now_ms: int, look_up: Callable[[], MutationLimit | None]) -> Charge | None:
        """The charge of an operation of a client; None if the client has no quota.

        `look_up` finds the stored quota of the client. It is called only if that may have changed.
        """
        client = self._by_client.get(client_id)
        if client is None or client.alterations != self._alterations:
            limit = look_up() or self._setting
            quota = None if client is None else client.quota
            if limit is None:
                quota = None
            elif quota is None:
                quota = MutationQuota(client_id, limit)
            else:
                quota.change(limit, now_ms)
            self._by_client[client_id] = client = _Client(quota, self._alterations)
            if len(self._by_client) > CLIENTS_MAX:
                self._by_client.popitem(last=False)
        self._by_client.move_to_end(client_id)
        return None if client.quota is None else Charge(client.quota, now_ms)


def check_rate(partitions_per_second: float, burst: float) -> None:
    """Raise ValueError unless they are valid for a quota."""
    if not (0 < partitions_per_second < math.inf and 0 < burst < math.inf):
        raise ValueError(
            f"a mutation quota of {partitions_per_second} partitions per second with a burst of {burst} is not valid;"
            " both must be finite and above 0, or leave the rate out for no quota"
        )
