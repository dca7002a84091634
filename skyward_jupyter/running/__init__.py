"""Execution of cells: sending, waiting, stopping, and binding results, in the foreground or background.

Imports `cells`, `display`, `files`, `failures` and `options`.
"""
