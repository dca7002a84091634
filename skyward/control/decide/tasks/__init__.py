"""Tasks: queue, slots, data locality, retries and deadlines. Decides where each task runs, and how it ends.

Pure. Imports values, and wire messages for their types.
"""
