"""Data brokers: they follow the committed metadata, keep partitions, and serve Kafka's clients."""
