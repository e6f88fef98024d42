"""The one or two examples at the end of each command's help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "up": ("kraftlog up --voters 3 --brokers 3 --dir mycluster", "kraftlog up --brokers 3 --first-broker-port 9192"),
    "demo": ("kraftlog demo",),
    "format": ("kraftlog format --config node-1.toml --cluster-id random",),
    "start": ("kraftlog start --config node-1.toml",),
    "random-uuid": ("kraftlog random-uuid",),
    "restore": ("kraftlog restore --snapshot backup/00000000000000001000-0000000003.checkpoint --dir restored",),
    "watch": ("kraftlog watch --limit 5",),
    "export": ("kraftlog export --to exported",),
    "report": ("kraftlog report --from exported",),
    "verify": ("kraftlog verify kraftlog-data/node-1",),
    "dump-log": ("kraftlog dump-log kraftlog-data/node-1",),
    "shell": (
        "kraftlog shell tree /topics/orders",
        "kraftlog shell --snapshot backup/00000000000000001000-0000000003.checkpoint ls /topics",
    ),
    "sql": (
        'kraftlog sql "SELECT name FROM topics ORDER BY name"',
        'kraftlog sql --output csv "SELECT broker_id, fenced FROM brokers" > brokers.csv',
    ),
    "elect": (
        "kraftlog elect --type preferred --all-topic-partitions",
        "kraftlog elect --type unclean --topic orders --partition 0",
    ),
    "health": ("kraftlog health", "kraftlog health --wait 60"),
    "produce": ("seq 1 1000 | kraftlog produce events", "kraftlog produce events --json < records.jsonl"),
    "consume": ("kraftlog consume events --until-end --count 3", "kraftlog consume events --keys --offsets"),
    "difftest": ("kraftlog difftest --sequences 10",),
    "node status": ("kraftlog node status",),
    "quorum describe": (
        "kraftlog quorum describe --status",
        "kraftlog quorum describe --replication --human-readable",
    ),
    "voters show": ("kraftlog voters show",),
    "voters set": (
        "kraftlog voters set --config node-1.toml --initial-controllers 1@localhost:9091:V7VsaELZQVqYTsnABLCUuQ",
    ),
    "topics create": (
        "kraftlog topics create orders --partitions 6 --replication-factor 3",
        "kraftlog topics create clicks --config retention.ms=3600000",
    ),
    "topics list": ("kraftlog topics list",),
    "topics describe": ("kraftlog topics describe orders", "kraftlog topics describe orders --replicas"),
    "topics alter": ("kraftlog topics alter orders --partitions 12 --config retention.ms=3600000",),
    "topics delete": ("kraftlog topics delete orders",),
    "topics apply": ("kraftlog topics apply -f topics.yaml --dry-run", "kraftlog topics apply -f topics.yaml"),
    "partitions describe": (
        "kraftlog partitions describe --under-replicated",
        "kraftlog partitions describe orders --leader 101",
    ),
    "partitions add": ("kraftlog partitions add orders --count 12",),
    "reassign generate": ("kraftlog reassign generate --topics orders --brokers 101,103 | tail -n 1 > moves.json",),
    "reassign execute": (
        "kraftlog reassign execute --file moves.json",
        "kraftlog reassign execute --file moves.json --throttle 50000000",
    ),
    "reassign verify": ("kraftlog reassign verify --file moves.json",),
    "reassign cancel": ("kraftlog reassign cancel --file moves.json",),
    "reassign list": ("kraftlog reassign list",),
    "tier segments": ("kraftlog tier segments orders 0",),
    "brokers register": ("kraftlog brokers register --id 1 --endpoint PLAINTEXT://localhost:9291",),
    "brokers run": (
        "kraftlog brokers run --id 1 --endpoint PLAINTEXT://localhost:9291 --data-dir broker-1",
        "kraftlog brokers run --config broker-1.toml",
    ),
    "brokers list": ("kraftlog brokers list",),
    "brokers report": ("kraftlog brokers report --data-dir broker-101 --to broker-101.json",),
    "brokers adopt": (
        "kraftlog brokers adopt --data-dir broker-101 --snapshot 00000000000001001000-0000000004.checkpoint",
        "kraftlog brokers adopt --data-dir broker-101 --snapshot 00000000000001001000-0000000004.checkpoint --execute",
    ),
    "brokers status": ("kraftlog brokers status", "kraftlog brokers status --id 101"),
    "brokers describe": ("kraftlog brokers describe --id 101",),
    "brokers fence": ("kraftlog brokers fence --id 101",),
    "brokers unregister": ("kraftlog brokers unregister --id 101",),
    "configs describe": (
        "kraftlog configs describe --entity-type topics --entity-name orders",
        "kraftlog configs describe --entity-type brokers --entity-name 101 --all",
    ),
    "configs alter": (
        "kraftlog configs alter --entity-type topics --entity-name orders --add-config retention.ms=3600000",
        "kraftlog configs alter --entity-type brokers --entity-default --add-config num.partitions=4",
    ),
    "features describe": ("kraftlog features describe",),
    "features upgrade": ("kraftlog features upgrade --metadata 4.3",),
    "features downgrade": ("kraftlog features downgrade --feature group.version=0",),
    "quotas describe": ("kraftlog quotas describe",),
    "quotas alter": ("kraftlog quotas alter --client-id reports --add-config producer_byte_rate=1000000",),
    "acls list": ("kraftlog acls list",),
    "acls add": ("kraftlog acls add --allow-principal User:alice --operation Read --topic orders",),
    "acls remove": ("kraftlog acls remove --allow-principal User:alice --operation Read --topic orders",),
    "log-dirs": ("kraftlog log-dirs --topic orders",),
    "log-dirs accept-loss": ("kraftlog log-dirs accept-loss orders-0 --directory broker-1/partitions",),
    "snapshot create": ("kraftlog snapshot create",),
    "snapshot list": ("kraftlog snapshot list",),
    "snapshot inspect": ("kraftlog snapshot inspect backup/00000000000000001000-0000000003.checkpoint",),
    "snapshot verify": ("kraftlog snapshot verify backup/00000000000000001000-0000000003.checkpoint",),
    "snapshot save": ("kraftlog snapshot save --to backup",),
    "kafka dump": ("kraftlog kafka dump kafka-logs/__cluster_metadata-0",),
    "kafka describe": ("kraftlog kafka describe kafka-logs",),
    "kafka sql": ('kraftlog kafka sql kafka-logs "SELECT name FROM topics"',),
    "kafka diff": ("kraftlog kafka diff yesterday today",),
    "kafka import": ("kraftlog kafka import kafka-logs --to imported",),
    "kafka export": (
        "kraftlog kafka export --snapshot backup/00000000000000001000-0000000003.checkpoint --to kafka-logs",
    ),
    "bench latency": ("kraftlog bench latency",),
    "bench throughput": ("kraftlog bench throughput",),
    "bench crowd": ("kraftlog bench crowd",),
    "bench catch-up": ("kraftlog bench catch-up",),
    "bench failover": ("kraftlog bench failover",),
    "bench snapshot": ("kraftlog bench snapshot",),
    "bench reload": ("kraftlog bench reload",),
    "bench metadata": ("kraftlog bench metadata",),
    "bench kafka": ("kraftlog bench kafka",),
    "bench cost": ("kraftlog bench cost --against ../before",),
    "bench starts": ("kraftlog bench starts --against ../before",),
    "bench produce": ("kraftlog bench produce --against ../before",),
    "bench peers": ("kraftlog bench peers",),
    "bench broker": ("kraftlog bench broker --only starts",),
    "bench replication": ("kraftlog bench replication",),
}
"""By the words after `kraftlog`. Examples that name no node or broker need its environment variable. `sim` and `chaos`
have help of their own.
"""

_NO_WRAPPING: Final = "\b"


def with_examples(command: Any, path: tuple[str, ...] = ()) -> Any:
    """Append the examples to the help of the command and of each of its subcommands."""
    for name, of_group in getattr(command, "commands", {}).items():
        with_examples(of_group, (*path, name))
    examples = EXAMPLES.get(" ".join(path))
    if examples is not None:
        title = "Example:" if len(examples) == 1 else "Examples:"
        command.epilog = "\n".join((_NO_WRAPPING, title, *(f"  {example}" for example in examples)))
    return command
