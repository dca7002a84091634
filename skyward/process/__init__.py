"""What a process has one of: the event loop, the clock, the thread switch interval; and waiting across threads and forks.

Used on both ends. Imports errors only.
"""
