"""The controller's side of worker adapters: a server for their connections, and a registry that decides what they do.

Imports the adapter protocol and provider values.
"""
