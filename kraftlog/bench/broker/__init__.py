"""The same figures for kraftlog's broker and a stock Kafka: throughput, single records, connections, partitions."""
