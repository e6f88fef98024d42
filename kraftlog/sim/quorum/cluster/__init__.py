"""The machines of a cluster, when their processes live and die, and whose data faults may take."""
