"""Cells before they are sent and after they have run: names, captured values, manifest, the notebook's originals.

Imports the wire formats of cells.
"""
