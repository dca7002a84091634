"""Benchmarks: each figure of the library with its floor and its peers, measured in one run."""
