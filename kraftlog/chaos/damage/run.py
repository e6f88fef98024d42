"""Makes the damages one after the other: restore, damage, start, read, stop, compare."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode, KraftlogError
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import NO_LEADER
from kraftlog.admin.client.client import AdminClient
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import BROKER_IDS, FIRST_BROKER, PARTITIONS, replicas_of
from kraftlog.chaos.damage.damages import SETTINGS, Damage, Setting, draw, make, undamaged
from kraftlog.chaos.damage.disks import Batches, files_of, gone, lost, served, survivors
from kraftlog.chaos.damage.images import Maker, Stopped
from kraftlog.chaos.damage.processes import Spawner
from kraftlog.chaos.damage.reading import Client, Reading, TopicIds, read_partition, resend
from kraftlog.chaos.damage.site import POLL_SECONDS, Described, Site, in_sync, until
from kraftlog.chaos.damage.verdicts import Outcome, Seen, Verdict, judge, named
from kraftlog.offline.broker_verification import verify_log_directory
from kraftlog.offline.file_reports import FileStatus
from kraftlog.storage.formats.names import LOG_SUFFIX
from statemachine.query.partition_descriptions import ElectionType

PATIENCE_SECONDS: Final = 10.0
"""How long replicas may take to be in sync, and partitions to have a leader, if the broker logs no error."""
LEADER_SECONDS: Final = 2.0
"""How long another replica may take to lead, where the leader has refused a read."""
REFUSED: Final = re.compile("CORRUPT_MESSAGE|damaged")
"""Matches a follower's log line about bytes that it refuses to copy."""
FEW_PLACES: Final = 4
MANY_PLACES: Final = 120
"""From how many offsets a partition is read, and for how many timestamps ListOffsets is called; many in the partition
whose file is damaged."""
RETRY_SECONDS: Final = 0.1
NAMED_PATIENCE_SECONDS: Final = 1.0
"""As `PATIENCE_SECONDS`, if the broker has named the damage or does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    seed: int
    numbers: Sequence[int]
    only: Collection[str] = ()
    """Kinds of damage or of files; all if empty."""
    directory: Path
    settings: Sequence[Setting] = SETTINGS


@dataclass(frozen=True, slots=True)
class Result:
    """One damage and its verdict."""

    damage: Damage
    outcome: Outcome
    seconds: float


class DamageRun:
    """One run and its results."""

    def __init__(self, plan: Plan, on_result: Callable[[Result], None] = lambda result: None) -> None:
        """Starts nothing. `on_result` is called with each result."""
        self.plan = plan
        self._on_result = on_result
        self.results: list[Result] = []
        self.under_way = "starting"
        self._stopped: dict[Setting, Stopped] = {}
        self._topic_ids: TopicIds = {}

    async def run(self) -> bool:
        """Carry out the run; return whether every damage ended well.

        Raises ApiError if the undamaged cluster does not start, ValueError if no damage of the kinds is possible.
        """
        with Spawner() as spawner:
            site = Site(self.plan.directory / "cluster", spawner)
            try:
                maker = Maker(site, self.plan.directory, self._tell)
                self._stopped = await maker.make(self.plan.settings)
                self._topic_ids = maker.topic_ids
                await self._control(site)
                for number in self.plan.numbers:
                    await self._damage(site, number)
            finally:
                await site.processes.kill_all()
        return all(result.outcome.verdict.is_well for result in self.results)

    def _tell(self, text: str) -> None:
        self.under_way = text

    async def _control(self, site: Site) -> None:
        """Check that without a damage the verdict is "same": otherwise other verdicts mean nothing. Raises ApiError."""
        for setting, stopped in self._stopped.items():
            self._tell(f"starting without a damage: {setting}")
            site.restore(stopped.path)
            nothing = undamaged(setting)
            outcome = judge(nothing, stopped.ledger, FIRST_BROKER, await self._start_and_look(site, stopped, nothing))
            if outcome.verdict is not Verdict.SAME:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{setting}: without a damage the verdict is {outcome.verdict}: {'; '.join(outcome.stories)}",
                )

    async def _damage(self, site: Site, number: int) -> None:
        images = {setting: stopped.image for setting, stopped in self._stopped.items()}
        damage = draw(self.plan.seed, number, images, self.plan.only)
        self.under_way = str(damage)
        began = time.monotonic()
        stopped = self._stopped[damage.setting]
        site.restore(stopped.path)
        make(damage, site.log_directory(FIRST_BROKER))
        seen = await self._start_and_look(site, stopped, damage)
        outcome = judge(damage, stopped.ledger, FIRST_BROKER, seen)
        result = Result(damage, outcome, time.monotonic() - began)
        self.results.append(result)
        self._on_result(result)

    # --- one start ----------------------------------------------------------------------------------------------------

    async def _start_and_look(self, site: Site, stopped: Stopped, damage: Damage) -> Seen:
        readings: dict[At, Reading] = {}
        moved: dict[At, Reading] = {}
        up: set[int] = set()
        not_in_sync: list[At] = []
        async with site.client() as client:
            try:
                up = await site.start(client)
                described = await self._settled(site, client, damage, up)
                readings = await self._read_all(site, client, described, stopped, damage, PARTITIONS)
                followed = await self._lead_all(site, client)
                described = await site.described(client)
                moved = await self._read_all(site, client, described, stopped, damage, followed)
                described = await site.described(client)
                not_in_sync = [at for at, part in described.items() if set(part.isr) != set(part.replicas)]
            except ApiError as error:
                readings = {at: Reading(error=str(error)) for at in PARTITIONS}
        await site.processes.kill_all()
        return self._with_disks(site, stopped, damage, Seen(readings, up, moved, not_in_sync, _output(site)))

    async def _read_all(
        self,
        site: Site,
        client: AdminClient,
        described: Described,
        stopped: Stopped,
        damage: Damage,
        which: Sequence[At],
    ) -> dict[At, Reading]:
        """Read these partitions. A refused read is repeated for a while: the leader may change."""
        readings: dict[At, Reading] = {}
        deadline = time.monotonic() + LEADER_SECONDS
        while True:
            left = [at for at in which if at not in readings or readings[at].error]
            readings |= await asyncio.to_thread(self._read, site, described, stopped, damage, left)
            if time.monotonic() > deadline or not any(readings[at].error and described[at].leader >= 0 for at in left):
                return readings
            await asyncio.sleep(RETRY_SECONDS)
            described = await site.described(client)

    async def _lead_all(self, site: Site, client: AdminClient) -> list[At]:
        """Make the damaged broker the leader of all partitions whose ISR it is in; return those it did not lead.

        Its copy is read then: a wrong copy must be detected while other copies exist.
        """
        described = await site.described(client)
        followed = [at for at, of in described.items() if FIRST_BROKER in of.isr and of.leader != FIRST_BROKER]
        if followed:
            partitions = [TopicPartition(*at) for at in followed]

            async def lead() -> bool:
                await client.elect_leaders(ElectionType.PREFERRED, partitions)
                now = await site.described(client)
                return all(now[at].leader == FIRST_BROKER or FIRST_BROKER not in now[at].isr for at in followed)

            await until(lead, PATIENCE_SECONDS, f"broker {FIRST_BROKER} does not lead where it is in sync")
        return followed

    async def _settled(self, site: Site, client: AdminClient, damage: Damage, up: Collection[int]) -> Described:
        """Return the partitions when all replicas are in sync, or after the time for that."""
        began = time.monotonic()
        while True:
            described = await site.described(client)
            waited = time.monotonic() - began
            is_known = FIRST_BROKER not in up or bool(named(damage, _output(site)))
            if in_sync(described) or waited > (NAMED_PATIENCE_SECONDS if is_known else PATIENCE_SECONDS):
                return described
            await asyncio.sleep(POLL_SECONDS)

    def _read(
        self, site: Site, described: Described, stopped: Stopped, damage: Damage, which: Iterable[At]
    ) -> dict[At, Reading]:
        client = Client(site.endpoints, self._topic_ids)
        readings = {}
        try:
            for at in which:
                leader, contents = described[at].leader, stopped.ledger[at]
                if leader == NO_LEADER:
                    readings[at] = Reading(error="it has no leader")
                    continue
                places = MANY_PLACES if at == damage.at else FEW_PLACES
                readings[at] = read_partition(client, leader, contents, places)
                resend(client, leader, contents, readings[at])
        finally:
            client.close()
        return readings

    # --- the disks ----------------------------------------------------------------------------------------------------

    def _with_disks(self, site: Site, stopped: Stopped, damage: Damage, seen: Seen) -> Seen:
        """Add the contents of the disks after the kill."""
        starts = {at: contents.log_start_offset for at, contents in stopped.ledger.items()}
        after = {broker_id: files_of(site.log_directory(broker_id)) for broker_id in BROKER_IDS}
        cut = {}
        for broker_id in BROKER_IDS[1:]:
            theirs = [at for at in PARTITIONS if broker_id in replicas_of(at.topic)]
            missing = lost(served(stopped.disks[broker_id], theirs), served(after[broker_id], theirs), starts)
            if missing:
                cut[broker_id] = missing
        seen.cut = cut
        left = dict(stopped.disks[FIRST_BROKER])
        if damage.file.endswith(LOG_SUFFIX):
            left[damage.file] = survivors(left[damage.file], damage.content)
        before = _union(served(files, PARTITIONS) for files in {**stopped.disks, FIRST_BROKER: left}.values())
        seen.gone = gone(before, after.values(), starts)
        if damage.is_hidden:
            seen.verified = _is_found(site.log_directory(FIRST_BROKER), damage)
        return seen


def _union(disks: Iterable[Batches]) -> Batches:
    found: dict[At, frozenset[bytes]] = {at: frozenset() for at in PARTITIONS}
    for batches in disks:
        for at, more in batches.items():
            found[at] |= more
    return found


def _is_found(directory: Path, damage: Damage) -> bool:
    """Whether `kraftlog verify` reports the file, or the part of it that was set aside, as damaged."""
    try:
        reports = verify_log_directory(directory)
    except KraftlogError:
        return True
    return any(
        report.status is FileStatus.DAMAGED and report.file.startswith(damage.file.removesuffix(LOG_SUFFIX))
        for report in reports
    )


def _output(site: Site) -> str:
    """Return the output of the damaged broker, and other brokers' lines about bytes that they have refused."""
    others = (line for of in BROKER_IDS[1:] for line in site.output(of).splitlines() if REFUSED.search(line))
    return site.output(FIRST_BROKER) + "\n".join(others)
