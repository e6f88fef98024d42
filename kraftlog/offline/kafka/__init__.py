"""The metadata of a real Kafka, from a copy of its directory: nothing is ever written there (docs/formats/kafka.md)."""
