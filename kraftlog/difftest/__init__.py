"""The same administration on three stock Kafka controllers and on three kraftlog voters: a difference is a finding."""
