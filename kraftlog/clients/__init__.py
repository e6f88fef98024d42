"""Clients of any Kafka broker: what `kraftlog produce`, `consume` and `log-dirs` do."""
