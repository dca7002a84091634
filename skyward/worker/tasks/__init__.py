"""Running tasks on a node: slots, deadlines, interrupts, child processes, threads and forks.

Imports `worker.events`, `worker.blobs` and payloads.
"""
