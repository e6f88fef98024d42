"""The same figures of three brokers of ours and of three of a stock Kafka, with three replicas of each partition."""
