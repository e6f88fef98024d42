"""A broker's replicas: the partitions that it leads and follows, and how followers fetch from leaders."""
