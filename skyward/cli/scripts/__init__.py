"""Commands `run` and `exec`: a script or a command on the nodes of a pool, as if it ran here."""
