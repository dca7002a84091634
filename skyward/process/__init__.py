"""Process-wide services: the event loop, the clock, thread switches, waiting across threads, forks and imports.

Used on both ends. Imports errors only.
"""
