"""Output of cells in the notebook: streams, progress, plots, sections, the footer and tables.

Imports the library's reporting and snapshots.
"""
