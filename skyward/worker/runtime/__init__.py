"""The worker process: the agent that takes commands, the lease, the node's part in the cluster.

Imports every other room of the worker.
"""
