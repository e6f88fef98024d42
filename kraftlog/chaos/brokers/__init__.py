"""`kraftlog chaos brokers`: voters and data brokers as processes under faults, while clients record every answer."""
