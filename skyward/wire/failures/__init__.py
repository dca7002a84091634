"""Serialized exceptions: type, traceback, and the frames that a debugger needs.

Imports `wire.payloads` and `wire.kinds`.
"""
