"""A cell before it is sent and after it is back: its names, what it captures, the manifest, the notebook's originals.

Imports the wire formats of cells.
"""
