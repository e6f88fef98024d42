"""A broker's listeners: the sockets that Kafka's clients connect to. No other part of a broker knows sockets."""
