"""gRPC between replicas and to readers of the log. Protobuf messages go no further in than this package."""
