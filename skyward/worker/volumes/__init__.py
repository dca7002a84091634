"""Volumes of a node: their mounts, copies and synchronized folders, and the uploads that tasks leave.

Imports storage, messages and the clock. The supervisor of the worker uses `places`, too, which imports
nothing else.
"""
