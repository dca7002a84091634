"""Machines: their lifecycle, the budget, and the reconciler that brings the fleet to the desired size.

Pure. Imports the lifecycle table, provider values and scaling snapshots.
"""
