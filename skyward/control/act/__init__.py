"""Asyncio runtime of a pool: mailboxes, timers, and the execution of the control plane's effects.

Contains no policy. Imports `decide`, `observe`, the link to the nodes, and the wire formats.
"""
