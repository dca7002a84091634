"""Serialized graphs of notebook objects: their content, identities, and what a cell changed in them.

Imports `wire.kinds`, `wire.payloads` and the handles of kept values.
"""
