"""What every connection to a machine has in common: the transport interface, child processes, the worker's first line.

Imports provider values.
"""
