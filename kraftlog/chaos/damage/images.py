"""Makes the clusters to damage: one voter and three brokers, stopped in each of four ways, with their contents.

The steps are the same in each: topics with one replica and with three, transactions, several closed segments,
DeleteRecords, a restart of the broker in between. Then the broker stops first or last, and records are produced to the
brokers that still run. The log directory is also kept as it was at two earlier times, for older copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_from_text
from kraftlog.admin.client.client import AdminClient
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import (
    BROKER_IDS,
    FIRST_BROKER,
    PARTITIONS,
    TOPIC_CONFIGS,
    TRANSACTIONS,
    Contents,
    batches,
    replicas_of,
    transactions,
)
from kraftlog.chaos.damage.damages import SETTINGS, Files, Image, Setting
from kraftlog.chaos.damage.disks import files_of
from kraftlog.chaos.damage.processes import VOTER
from kraftlog.chaos.damage.reading import Client, TopicIds
from kraftlog.chaos.damage.site import Site, in_sync, until
from kraftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kraftlog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kraftlog.kafka.record_batch import read_batches
from kraftlog.storage.formats.checkpoints import decode_offsets
from kraftlog.storage.formats.names import (
    HIGH_WATERMARKS_NAME,
    LOG_STARTS_NAME,
    LOG_SUFFIX,
    RECOVERY_POINTS_NAME,
    file_name,
)
from statemachine.query.descriptions import NewTopic
from statemachine.query.partition_descriptions import ElectionType

SETTLE_SECONDS: Final = 60.0
STAGE_BATCHES: Final = 12
DELETED: Final = (At("one", 0), At("three", 0))
"""The partitions whose oldest records are deleted by DeleteRecords."""

Ledger = dict[At, Contents]


@dataclass(frozen=True, slots=True)
class Stopped:
    """A cluster that was stopped in one of the ways."""

    path: Path
    image: Image
    disks: Mapping[int, Files]
    """The log directory of each broker."""
    ledger: Mapping[At, Contents]


class Maker:
    """Makes the stopped clusters."""

    def __init__(self, site: Site, directory: Path, tell: Callable[[str], None] = lambda text: None) -> None:
        """`directory` keeps the clusters."""
        self.topic_ids: TopicIds = {}
        self._site = site
        self._directory = directory
        self._tell = tell
        self._ledger: Ledger = {at: Contents(at) for at in PARTITIONS}
        self._older: list[Files] = []

    async def make(self, settings: Iterable[Setting] = SETTINGS) -> dict[Setting, Stopped]:
        """Make a stopped cluster for each setting. Raises ApiError."""
        self._tell("making topics and records")
        base = self._directory / "base"
        await self._make_base(base)
        found = {}
        for setting in settings:
            self._tell(f"making the files: {setting}")
            found[setting] = await self._make_one(base, setting)
        return found

    # --- what all have in common --------------------------------------------------------------------------------------

    async def _make_base(self, base: Path) -> None:
        site, processes = self._site, self._site.processes
        async with site.client() as client:
            await self._start(client)
            await self._create_topics(client)
            await until(self._have_logs, SETTLE_SECONDS, "the brokers have not made the partitions' logs")
            for broker_id in BROKER_IDS:
                await site.stop(client, broker_id, is_killed=True)
            self._write_transactions()
            await self._start(client)
            await self._settle(client)
            await self._produce(client, PARTITIONS, STAGE_BATCHES)
            await self._until_checkpointed(BROKER_IDS)
            self._keep_older()
            await self._delete_records(client)
            await self._produce(client, PARTITIONS, STAGE_BATCHES)
            await site.stop(client, FIRST_BROKER, is_killed=False)
            self._keep_older()
            await self._start(client, [FIRST_BROKER])
            await self._settle(client)
            await self._produce(client, PARTITIONS, STAGE_BATCHES)
            await self._until_checkpointed(BROKER_IDS)
            for broker_id in reversed(BROKER_IDS):
                await site.stop(client, broker_id, is_killed=False)
            await processes.end_gently(VOTER)
        site.save(base)

    async def _start(self, client: AdminClient, broker_ids: Collection[int] = BROKER_IDS) -> None:
        up = await self._site.start(client, broker_ids)
        if up != set(broker_ids):
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"of brokers {sorted(broker_ids)} only {sorted(up)} have started"
            )

    async def _create_topics(self, client: AdminClient) -> None:
        topics = [
            NewTopic(
                name,
                assignments={at.partition: replicas_of(name) for at in PARTITIONS if at.topic == name},
                configs=TOPIC_CONFIGS,
            )
            for name in dict.fromkeys(at.topic for at in PARTITIONS)
        ]
        created = await client.create_topics(topics)
        self.topic_ids = {topic.name: uuid_from_text(topic.topic_id).bytes for topic in created}

    async def _have_logs(self) -> bool:
        return all(
            (self._site.log_directory(broker_id) / str(at) / file_name(0, LOG_SUFFIX)).exists()
            for at in PARTITIONS
            for broker_id in replicas_of(at.topic)
        )

    async def _settle(self, client: AdminClient, among: Collection[int] = BROKER_IDS) -> None:
        """Wait until all replicas are in sync, and the first broker, if it is among them, leads its partitions."""

        async def settled() -> bool:
            described = await self._site.described(client)
            if len(described) < len(PARTITIONS) or not in_sync(described, among):
                return False
            moved = [at for at, part in described.items() if part.leader != part.replicas[0] and FIRST_BROKER in among]
            if moved:
                await client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(*at) for at in moved])
            return not moved

        await until(settled, SETTLE_SECONDS, "the partitions are not in sync")

    def _write_transactions(self) -> None:
        """Write transactions into the logs of stopped brokers, as a stock Kafka may have left them.

        kraftlog has no transaction coordinator that could write them.
        """
        for name in TRANSACTIONS:
            contents = self._ledger[At(name, 0)]
            base, segments = 0, []
            for segment in transactions(contents):
                segments.append((base, b"".join(segment)))
                base = _end_of(segment)
            for broker_id in replicas_of(name):
                directory = self._site.log_directory(broker_id) / str(contents.at)
                for base, content in segments:
                    (directory / file_name(base, LOG_SUFFIX)).write_bytes(content)

    # --- records ------------------------------------------------------------------------------------------------------

    async def _produce(self, client: AdminClient, where: Iterable[At], count: int, *, has_peak: bool = False) -> None:
        leaders = {at: part.leader for at, part in (await self._site.described(client)).items()}
        await asyncio.to_thread(self._produce_to, leaders, list(where), count, has_peak=has_peak)

    def _produce_to(self, leaders: Mapping[At, int], where: Iterable[At], count: int, *, has_peak: bool) -> None:
        client = Client(self._site.endpoints, self.topic_ids)
        try:
            for at in where:
                contents = self._ledger[at]
                if contents.producer_id < 0:
                    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                    answer = client.connection(leaders[at]).call(request, InitProducerIdResponse)
                    contents.producer_id = answer.producer_id
                for batch in list(batches(contents, count, has_peak=has_peak)):
                    produced = client.produce(leaders[at], at, batch)
                    if produced.error_code != ErrorCode.NONE:
                        raise ApiError(ErrorCode(produced.error_code), f"{at}: {produced.error_message}")
                    contents.stored(produced.base_offset, batch)
        finally:
            client.close()

    async def _delete_records(self, client: AdminClient) -> None:
        leaders = {at: part.leader for at, part in (await self._site.described(client)).items()}
        connections = Client(self._site.endpoints, self.topic_ids)
        try:
            for at in DELETED:
                contents = self._ledger[at]
                offset = contents.log_end_offset * 3 // 4
                of = DeleteRecordsPartition(partition_index=at.partition, offset=offset)
                topic = DeleteRecordsTopic(name=at.topic, partitions=(of,))
                request = DeleteRecordsRequest(topics=(topic,), timeout_ms=20_000)
                connection = connections.connection(leaders[at])
                answer = await asyncio.to_thread(connection.call, request, DeleteRecordsResponse)
                code = answer.topics[0].partitions[0].error_code
                if code != ErrorCode.NONE:
                    raise ApiError(ErrorCode(code), f"records of {at} are not deleted")
                contents.log_start_offset = offset
        finally:
            connections.close()

    # --- checkpoints and copies ---------------------------------------------------------------------------------------

    async def _until_checkpointed(self, broker_ids: Iterable[int]) -> None:
        """Wait until the checkpoints of these brokers have the log ends and starts, as they have after a busy time."""
        for broker_id in broker_ids:
            ends = {at: of for at, of in self._ledger.items() if broker_id in replicas_of(at.topic)}

            async def are_there(broker_id: int = broker_id, ends: Ledger = ends) -> bool:
                high = self._checkpoint(broker_id, HIGH_WATERMARKS_NAME)
                flushed = self._checkpoint(broker_id, RECOVERY_POINTS_NAME)
                starts = self._checkpoint(broker_id, LOG_STARTS_NAME)
                return all(
                    high.get(TopicPartition(*at), 0) == of.log_end_offset
                    and flushed.get(TopicPartition(*at), 0) > 0
                    and starts.get(TopicPartition(*at), 0) == of.log_start_offset
                    for at, of in ends.items()
                )

            await until(are_there, SETTLE_SECONDS, f"broker {broker_id} has not written its checkpoints")

    def _checkpoint(self, broker_id: int, name: str) -> Mapping[TopicPartition, int]:
        path = self._site.log_directory(broker_id) / name
        return decode_offsets(path.read_bytes(), str(path)) if path.exists() else {}

    def _keep_older(self) -> None:
        self._older.append(files_of(self._site.log_directory(FIRST_BROKER)))

    # --- what each has for itself -------------------------------------------------------------------------------------

    async def _make_one(self, base: Path, setting: Setting) -> Stopped:
        """Stop the brokers in the setting's order; after each stop, produce more records to the others."""
        site, common = self._site, self._ledger
        site.restore(base)
        self._ledger = {at: contents.copy() for at, contents in common.items()}
        async with site.client() as client:
            await self._start(client)
            await self._settle(client)
            await self._produce(client, PARTITIONS, STAGE_BATCHES)
            order = BROKER_IDS if not setting.is_last else BROKER_IDS[1:] + BROKER_IDS[:1]
            staying = set(BROKER_IDS)
            for broker_id in order:
                await self._until_checkpointed([broker_id])
                await site.stop(client, broker_id, is_killed=setting.is_killed)
                staying.discard(broker_id)
                if staying:
                    await self._settle(client, staying)
                    where = [at for at in PARTITIONS if staying & set(replicas_of(at.topic))]
                    await self._produce(client, where, STAGE_BATCHES // 2, has_peak=True)
            await site.processes.end_gently(VOTER)
        path = self._directory / str(setting).replace(", ", "-").replace(" ", "-")
        site.save(path)
        disks = {broker_id: files_of(site.log_directory(broker_id)) for broker_id in BROKER_IDS}
        image = Image(disks[FIRST_BROKER], tuple(self._older), disks[BROKER_IDS[1]])
        stopped = Stopped(path, image, disks, self._ledger)
        self._ledger = common
        return stopped


def _end_of(segment: Iterable[bytes]) -> int:
    return max(batch.end_offset for content in segment for batch in read_batches(content))
