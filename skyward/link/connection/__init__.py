"""Common ground of connections to machines: the transport interface, child processes, the worker's handshake.

Imports provider values.
"""
