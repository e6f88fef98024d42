"""Commands that run a cluster: of nodes, brokers, voters and features."""
