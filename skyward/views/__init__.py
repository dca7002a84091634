"""Views of pools: the rows that every view draws, and the views without a front end, as text, HTML and in a terminal.

The projection decides statuses, titles and order; the views only draw. Front ends register their own live views.
Imports snapshots, events and formatting.
"""
