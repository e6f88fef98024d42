"""Work that needs more records than one batch holds: page by page over partitions (CT-12).

Every page is decided on the latest state at its turn, so other operations may run between two pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.tables.table import Condition, Key, Page

PAGE_PARTITIONS: Final = 200
"""About twenty milliseconds of work: the fixed costs of a page and a commit are shared by this many partitions."""

FindPage = Callable[[Key | None, int], Page[PartitionRecord]]
"""A page of the partitions above a key (topic id, partition id), at most that many."""


class Pages(Protocol):
    """Records that come in pages."""

    def next_page(self) -> list[MetadataRecord] | None:
        """The next page, maybe empty; None after the last. A page that is not empty is repeated until `appended`."""
        ...

    def appended(self) -> None:
        """The last page returned by `next_page` is appended."""
        ...


class PartitionPages:
    """The results of `decide` on the partitions that each of `find_pages` finds, and `closing` at the end."""

    def __init__(
        self,
        find_pages: Sequence[FindPage],
        decide: Callable[[Sequence[PartitionRecord]], list[MetadataRecord]],
        closing: Callable[[], list[MetadataRecord]] = list,
    ) -> None:
        self._sources = list(find_pages)
        self._decide = decide
        self._closing: Callable[[], list[MetadataRecord]] | None = closing
        self._after: Key | None = None
        self._page_end: Key | None = None

    def next_page(self) -> list[MetadataRecord] | None:
        """The records of the next page."""
        if not self._sources:
            records = None if self._closing is None else self._closing()
            if not records:
                self._closing = None
            return records
        page = self._sources[0](self._after, PAGE_PARTITIONS)
        self._page_end = page.end
        records = self._decide([partition for _, partition in page.found])
        if not records:
            self._go_on()
        return records

    # A page that the log refuses is not kept: it is decided again. Consider a topic with partitions 0 to 449, all of
    # which a broker leaves. The pages end with 199, 399 and 449. The first is appended; the second is refused, since
    # too much is pending. Then partition 250 gets another leader. 100 ms later `next_page` reads the partitions above
    # 199 again and decides on the new state of 250. Had the refused page been kept, it would carry a change of the old
    # state of 250.
    def appended(self) -> None:
        """Continue after the page."""
        if self._sources:
            self._go_on()
        else:
            self._closing = None

    def _go_on(self) -> None:
        self._after = self._page_end
        if self._page_end is None:
            self._sources.pop(0)


def led_by(state: MetadataState, broker_id: int) -> FindPage:
    """Partitions that a broker leads; -1: those without a leader."""
    return lambda after, limit: _page(state.partitions_led_by(broker_id, after, limit), limit)


def assigned_to(state: MetadataState, broker_id: int) -> FindPage:
    """Partitions of which a broker has a replica."""
    return lambda after, limit: state.partitions_on(broker_id, after, limit)


def with_eligible(state: MetadataState, topic_id: bytes | None = None) -> FindPage:
    """Partitions, of one topic or of all, with replicas that may lead though not in sync, or did last (KIP-966)."""
    return lambda after, limit: _page(state.partitions_with_elr(topic_id, after, limit), limit)


def where(state: MetadataState, condition: Condition[PartitionRecord]) -> FindPage:
    """Partitions that meet a condition."""
    return lambda after, limit: state.partitions_where(condition, after, limit)


def _page(partitions: Sequence[PartitionRecord], limit: int) -> Page[PartitionRecord]:
    found = [((partition.topic_id, partition.partition_id), partition) for partition in partitions]
    return Page(found, found[-1][0] if len(found) == limit else None)
