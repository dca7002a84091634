"""Decision logs: the evaluations of a pool's scaling policy as a file, which can be replayed."""
