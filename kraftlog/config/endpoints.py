"""Addresses as users write them: `host:port`, `[::1]:port`, and `id@host:port` for a voter.

With its directory id, a voter is `id@host:port:directory-id`, as kafka-storage takes it.

Every function raises ConfigurationError that quotes the text and describes the correct form.
"""

from __future__ import annotations

import re
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftbase.sentinels import ZERO_DIRECTORY_ID
from kraftbase.types import NodeId
from kraftbase.uuids import uuid_from_text, uuid_to_text
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet

PORT_MAX: Final = 65535
NODE_ID_MAX: Final = 2**31 - 1
WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (named to be refused where no client can connect to it)

_ENDPOINT: Final = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^:\[\]/@,\s]+)):(?P<port>[0-9]{1,6})")


def parse_endpoint(text: str) -> Endpoint:
    """`host:port`; an IPv6 address goes in brackets. The port is from 1 to 65535."""
    address = text.strip()
    match = _ENDPOINT.fullmatch(address) if address.isprintable() else None
    if match is None:
        raise ConfigurationError(f"{text!r} is not an address; write host:port, or [address]:port for IPv6")
    port = int(match["port"])
    if not 1 <= port <= PORT_MAX:
        raise ConfigurationError(f"{text!r} has port {port}; it must be from 1 to {PORT_MAX}")
    return Endpoint(match["bracketed"] or match["plain"], port)


def parse_reachable_endpoint(text: str) -> Endpoint:
    """An address that other nodes connect to, so not the wildcard for all of this machine's addresses."""
    endpoint = parse_endpoint(text)
    if endpoint.host in WILDCARD_HOSTS:
        raise ConfigurationError(f"{text!r} is an address that no client can connect to; name the host")
    return endpoint


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Addresses separated by commas, at least one."""
    return tuple(parse_reachable_endpoint(part) for part in text.split(","))


def parse_node_id(text: str) -> NodeId:
    """A node id: a whole number from 0 on."""
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > NODE_ID_MAX:
        raise ConfigurationError(f"{text!r} is not a node id; it must be a whole number from 0 to {NODE_ID_MAX}")
    return NodeId(int(text))


def parse_voter(text: str) -> tuple[NodeId, Endpoint]:
    """`id@host:port`. 0.0.0.0:0, Kafka's placeholder for "not known yet", is refused."""
    node_id, at, address = text.strip().partition("@")
    if not at:
        raise ConfigurationError(f"{text!r} is not a voter; write id@host:port, for example 1@localhost:9093")
    return parse_node_id(node_id), parse_reachable_endpoint(address)


def parse_initial_controllers(text: str) -> VoterSet:
    """`id@host:port:directory-id` for each voter, separated by commas."""
    return VoterSet(_parse_initial_controller(part) for part in text.split(","))


def _parse_initial_controller(text: str) -> Voter:
    voter, _, directory_id = text.strip().rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", directory_id):
        raise ConfigurationError(
            f"{text!r} is not a voter with its directory id; write id@host:port:directory-id, for example"
            " 1@localhost:9093:bx2cUjsKTo-aVwxNLoGz9g"
        )
    node_id, endpoint = parse_voter(voter)
    found = uuid_from_text(directory_id)
    if found == ZERO_DIRECTORY_ID:
        raise ConfigurationError(f"{text!r} has the directory id zero, which means none; use a random one")
    return Voter(ReplicaKey(node_id, found), endpoint)


def initial_controllers_text(voters: VoterSet) -> str:
    """The text that `parse_initial_controllers` parses to these voters. All must have directory ids."""
    return ",".join(
        f"{voter.key.node_id}@{voter.endpoint}:{uuid_to_text(voter.key.directory_id)}"
        for voter in voters.voters()
        if voter.key.directory_id is not None
    )
