"""Kafka's names, ids and values, and which of them are allowed."""
