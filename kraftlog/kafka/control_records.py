"""The values of control records, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, int16, int32, int64, string, struct, uint16, uuid


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16()
    leader_id: int = int32()
    voters: tuple[Voter, ...] = array(Voter)
    granting_voters: tuple[Voter, ...] = array(Voter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    kraft_version: int = int16(name="kRaftVersion")


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: tuple[Endpoint, ...] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, name="kRaftVersionFeature")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    voters: tuple[VotersVoter, ...] = array(VotersVoter)


class EndTxnMarker(Message, versions="0", flexible="none"):
    coordinator_epoch: int = int32()
