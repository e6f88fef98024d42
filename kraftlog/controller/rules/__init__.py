"""Rules that several operations share: placement, elections, quotas, sessions of brokers."""
