"""Benchmarks: each figure of the library beside its floor and its peers, measured in one run."""
