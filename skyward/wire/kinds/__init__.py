"""Pickling rules for kinds of objects that cloudpickle alone gets wrong: arrays, enums, caches, exceptions, and others.

Each module knows one kind. Imports nothing of Skyward but its siblings.
"""
