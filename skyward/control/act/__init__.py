"""The asyncio shell of a pool: mailboxes, timers, and the effects that the control plane decides on.

Holds no policy. Imports `decide`, `observe`, the link to the nodes, and the wire formats.
"""
