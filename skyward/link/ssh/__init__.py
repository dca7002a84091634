"""Machines that are entered over SSH: OpenSSH where it is installed, else asyncssh, each in a process of its own.

Imports `link.connection`, `link.exec` and `bootstrap`.
"""
