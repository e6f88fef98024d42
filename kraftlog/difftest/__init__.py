"""The same administration on three stock Kafka controllers and on three of our voters: what differs is a finding."""
