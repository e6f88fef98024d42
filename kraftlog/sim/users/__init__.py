"""Those who use the cluster: clients of registers, brokers, the administrator."""
