"""Graphs of notebook objects as they travel: their content, identities, and what a cell changed in them.

Imports `wire.kinds`, `wire.payloads` and the handles of kept values.
"""
