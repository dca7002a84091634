"""Tasks on the client: futures, streams, inputs, results that stay on their nodes, and how a task settles.

Imports `decide`, `observe`, and the wire formats; nothing of nodes beyond their type.
"""
