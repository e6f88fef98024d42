"""The levels of features that Kafka has and kraftlog does not, such as group.version."""

from __future__ import annotations

from kraftlog.kafka.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from kraftlog.kafka.notation import Message
from kraftlog.offline.kafka.conversion import KNOWN_FEATURES


class OtherFeatures:
    """The levels replayed so far. Records of a transaction count when it ends, and not if it is aborted."""

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        self._waiting: list[FeatureLevelRecord] | None = None

    def take(self, record: Message) -> None:
        """A level, or the marker of a transaction; anything else has no effect."""
        match record:
            case BeginTransactionRecord():
                self._waiting = []
            case AbortTransactionRecord():
                self._waiting = None
            case EndTransactionRecord():
                waiting, self._waiting = self._waiting or [], None
                for waited in waiting:
                    self._set(waited)
            case FeatureLevelRecord() if record.name in KNOWN_FEATURES:
                pass
            case FeatureLevelRecord() if self._waiting is not None:
                self._waiting.append(record)
            case FeatureLevelRecord():
                self._set(record)

    def _set(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.levels[record.name] = record.feature_level
        else:
            self.levels.pop(record.name, None)
