"""Client quotas of a broker: rates, which quota applies to a client, and how long a client over its quota waits."""
