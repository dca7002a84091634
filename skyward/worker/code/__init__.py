"""The code of a cell on a node: its program, its shell, local modules, and its side effects on the process.

Imports `wire.objects`, `wire.payloads` and the API of tasks.
"""
