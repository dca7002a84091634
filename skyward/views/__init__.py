"""Views of pools without a front end: tables, static HTML, a live table in a terminal.

Front ends register their own live views. Imports snapshots, events and formatting.
"""
