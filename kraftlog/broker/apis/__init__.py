"""The handlers of Kafka's requests, one module for each API or for a few related ones."""
