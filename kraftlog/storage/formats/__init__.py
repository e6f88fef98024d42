"""Names and bytes of the files of Kafka's logs, pure (docs/formats/partition-log.md)."""
