"""Pools as people see them without a front end: tables, static HTML, a live table in a terminal.

Front ends register a live view of their own. Imports snapshots, events and formatting.
"""
