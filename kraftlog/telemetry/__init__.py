"""A broker's metrics and decisions: the registry, the metrics by Kafka's names, and the observers of decisions."""
