"""gRPC between replicas and to readers of the log. Protobuf messages do not leave this package."""
