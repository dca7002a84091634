"""Process-wide services: the event loop, the clock, the thread switch interval, waiting across threads, forks.

Used on both ends. Imports errors only.
"""
