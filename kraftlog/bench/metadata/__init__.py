"""The controller under load with much metadata, in parts that can be run one by one: `kraftlog bench metadata`."""
