"""The same figures of our broker and of a stock Kafka: produce, consume, single records, connections, partitions."""
