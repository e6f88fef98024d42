"""Kafka's bytes, pure: message tables and their codec, record batches, metadata records, and the framing of requests.

Nothing here reads a socket, a file or a clock.
"""
