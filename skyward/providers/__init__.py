"""The provider protocol: what a provider implements, the values that cross it, and the registry of entry points.

Imports errors and specs.
"""
