"""Machines that are entered by a local command, such as `docker exec`.

Imports `link.connection`.
"""
