"""The controller under load with much metadata, in parts that can run separately: `kraftlog bench metadata`."""
