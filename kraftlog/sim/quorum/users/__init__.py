"""The users of the cluster: clients of registers, brokers, the administrator."""
