"""What the controller does with much metadata, in parts that can be run one by one: `kraftlog bench metadata`."""
