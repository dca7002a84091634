"""The blob store of a node: shared memory, transfers from the client and from other nodes, reference counts.

Imports wire formats and `worker.machine`.
"""
