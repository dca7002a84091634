"""Clouds on loopback: servers with the API of a vendor, checked against its published description.

Each keeps its state in memory, and makes mistakes on request. Where a test gives them a network, their machines are
real ones (`tests.machines.machine`).
"""
