"""Running a cell: sending it, waiting, stopping, and binding its results, in the foreground or background.

Imports `cells`, `display`, `files`, `failures` and `options`.
"""
