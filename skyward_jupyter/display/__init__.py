"""Output of cells in the notebook: streams, progress, plots, sections, the footer and tables.

Imports reporting and snapshots of the library.
"""
