"""Tasks: the queue, slots, data locality, retries and deadlines; which task runs where, and how it ends.

Pure. Imports values, and wire messages for their types.
"""
