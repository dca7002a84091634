"""Training frameworks, by real groups of processes."""
