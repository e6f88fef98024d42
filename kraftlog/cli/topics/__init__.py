"""Commands about topics, partitions and their configs."""
