"""The version of Fetch that this node may use: the one of the cluster's metadata.version (CT-62, PK-05).

Version 18 carries the replica's high watermark (KIP-1166), and all nodes understand it from metadata.version 27 on. The
log below knows nothing of features: it is notified when the finalized level that is applied here changes the version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kraftbase.types import Offset
from raft.core.types import LeaderAndEpoch
from statemachine.apply.applied import CommittedMetadata
from statemachine.query import metadata_queries
from statemachine.tables.cluster_tables import FEATURES
from statemachine.words.features import FETCH_VERSION_18

VERSION_BEFORE: Final = 17
"""The version of fetches below that level."""

logger = structlog.get_logger(__name__)


def allowed_fetch_version(store: CommittedMetadata) -> int:
    """The highest version of Fetch at the metadata.version that `store` holds; that of the lowest if it holds none."""
    return 18 if metadata_queries.metadata_version(store.reader) >= FETCH_VERSION_18 else VERSION_BEFORE


class FetchVersionGate:
    """Notifies the log when applied records change the version: a `Subscriber` of the state machine."""

    def __init__(self, store: CommittedMetadata, allow: Callable[[int], None]) -> None:
        """`allow` is called, on the event loop, when the version differs from the one at creation."""
        self._store = store
        self._allow = allow
        self._looked_at = store.changed_at(FEATURES)
        self._version = allowed_fetch_version(store)

    def applied(self, end_offset: Offset) -> None:
        """Check the feature if features have changed: one row, by its key."""
        changed_at = self._store.changed_at(FEATURES)
        if changed_at == self._looked_at:
            return
        self._looked_at = changed_at
        version = allowed_fetch_version(self._store)
        if version != self._version:
            logger.info("the metadata.version allows another version of Fetch", version=version, end_offset=end_offset)
            self._version = version
            self._allow(version)

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Does nothing: every leader answers all versions."""

    def shut_down(self) -> None:
        """There is nothing to end."""
