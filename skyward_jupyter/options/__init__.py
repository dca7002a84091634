"""The options of the magics: one table, its parsers, and defaults from traits and files.

Imports specs, config and values.
"""
