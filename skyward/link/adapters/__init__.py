"""The controller's side of worker adapters: a server for their connections, and a book that decides what they do.

Imports the adapter protocol and provider values.
"""
