"""What a Kafka's metadata has that kraftlog's has not: it is counted, and the secrets in it are never shown."""

from __future__ import annotations

from kraftlog.kafka.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from kraftlog.kafka.notation import Message


class KafkaOnly:
    """What was replayed so far. Records of a transaction count when it ends, and not if it is aborted."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        """Levels of features that kraftlog does not have."""
        self._credentials: set[tuple[str, int]] = set()
        """User and mechanism of each SCRAM credential."""
        self._tokens: set[str] = set()
        self._zookeeper_state = 0
        self._waiting: list[Message] | None = None

    def take(self, record: Message) -> None:
        """A record for which there is none of ours, or the marker of a transaction."""
        match record:
            case BeginTransactionRecord():
                self._waiting = []
            case AbortTransactionRecord():
                self._waiting = None
            case EndTransactionRecord():
                waiting, self._waiting = self._waiting or [], None
                for waited in waiting:
                    self._apply(waited)
            case _ if self._waiting is not None:
                self._waiting.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: Message) -> None:
        match record:
            case FeatureLevelRecord(feature_level=0):
                self.features.pop(record.name, None)
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case UserScramCredentialRecord():
                self._credentials.add((record.name, record.mechanism))
            case RemoveUserScramCredentialRecord():
                self._credentials.discard((record.name, record.mechanism))
            case DelegationTokenRecord():
                self._tokens.add(record.token_id)
            case RemoveDelegationTokenRecord():
                self._tokens.discard(record.token_id)
            case ZkMigrationStateRecord():
                self._zookeeper_state = record.zk_migration_state

    def counts(self) -> dict[str, int]:
        """How much of each there is, without what there is none of."""
        counted = {
            "SCRAM credentials": len(self._credentials),
            "delegation tokens": len(self._tokens),
            "states of a migration from ZooKeeper": int(self._zookeeper_state != 0),
        }
        return {name: count for name, count in counted.items() if count}
