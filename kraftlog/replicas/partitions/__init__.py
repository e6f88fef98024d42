"""The partitions of which a broker has replicas, and the operations on them; synchronous, over ports."""
