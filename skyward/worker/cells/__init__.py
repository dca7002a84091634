"""A notebook cell on a node: its captured values, what it changed and returns, the values that it keeps, and its files.

Imports `worker.code`, `worker.tasks`, `worker.display` and `wire.objects`.
"""
