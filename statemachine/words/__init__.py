"""Kafka's names, ids and values, and what of them is allowed."""
