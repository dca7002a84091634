"""Volumes of a node: their mounts, copies and synchronized folders, and the uploads that tasks leave.

Imports storage, messages and the clock. `places` is also used by the supervisor of the worker, so it imports nothing.
"""
