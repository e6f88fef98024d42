"""The same figures for three brokers of kraftlog and three of a stock Kafka, with three replicas of each partition."""
