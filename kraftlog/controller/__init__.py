"""The controller: it turns operations into records, and watches over brokers and partitions."""
