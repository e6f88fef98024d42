"""Options that the clients of brokers share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

INT32_MAX: Final = 2**31 - 1

BrokerServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        envvar="KRAFTLOG_BROKERS",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Any brokers of the cluster, kraftlog's or Kafka's; the client finds the others through them.",
    ),
]
OptionalBrokerServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        envvar="KRAFTLOG_BROKERS",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Any brokers of the cluster, kraftlog's or Kafka's; the client finds the others through them.",
    ),
]
"""For a group of commands of which not all ask a broker."""
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic. It must exist.")]
ChecksumOption = Annotated[
    bool,
    typer.Option(
        "--checksum",
        help="Print a digest of keys, values and headers, the same in any order, to compare written and read records.",
    ),
]
