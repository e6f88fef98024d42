"""The synchronous shell around the core: it carries actions out, in nodes and in the simulator alike."""
