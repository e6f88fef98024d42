"""The tables of Kafka 4.3's requests and responses, one module an API."""
