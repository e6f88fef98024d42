"""The same figures for kraftlog and its peers, etcd and Kafka's controllers, each with three processes."""
