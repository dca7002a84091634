"""The observable state of a pool: snapshots, the output log, costs, start-up phases and failures.

Values and bookkeeping only. Imports events, provider values and the lifecycle table.
"""
