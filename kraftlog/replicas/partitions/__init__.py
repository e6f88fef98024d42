"""The partitions of which a broker has replicas, and what may be done with them: synchronous, over ports."""
