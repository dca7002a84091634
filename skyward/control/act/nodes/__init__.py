"""Nodes on the client: one object per node, and the code that launches, connects, replicates to and removes nodes.

Imports `act.machines`, `act.tasks`, `decide`, `link` and `bootstrap`.
"""
