"""Machines of providers: offers for them, requests, boots, the images that they start from, and warm machines.

Knows no nodes. Imports `decide`, `market`, `providers`, `journal` and the link to the machines.
"""
