"""The controller: it turns operations into records, and manages brokers and partitions."""
