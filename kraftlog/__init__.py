"""The command line, configuration, local cluster and demo of kraftlog."""

__version__ = "0.1.0"
