"""Caches of a machine that outlive pools and environments: who uses them, and what is removed from them.

Imports the standard library only: the worker uses it as it starts, and `skyward.bootstrap.prune` on the machine.
"""
