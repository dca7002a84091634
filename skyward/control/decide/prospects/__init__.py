"""Nodes that can still come: the groups that can launch them, the room for them, and what waits for them in vain.

Decides only; no I/O.
"""
