"""The names and the bytes of the files of Kafka's logs; pure (docs/formats/partition-log.md)."""
