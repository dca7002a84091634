"""The provider protocol: its operations, its values, and the registry of providers.

Imports errors and specs.
"""
