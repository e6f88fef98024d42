"""The machines of a cluster, the start and end of their processes, and whose data faults may destroy."""
