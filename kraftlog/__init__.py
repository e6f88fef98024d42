"""The command line, configuration, local cluster and demo of kraftlog."""
