"""A notebook cell on a node: its names, its program, what it changed, its files, and the shell it sees.

Imports `worker.tasks`, `worker.display` and `wire.objects`.
"""
