"""What a broker counts about itself: the registry, and the names that operators know from Kafka."""
