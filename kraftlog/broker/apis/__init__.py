"""The requests of Kafka's clients, one module for each API or for a few that belong together."""
