"""The same figures of this project and of its peers: etcd and Kafka's controllers, each with three processes."""
