"""The API of code inside a task: instance info, shards, output control, context variables.

Imports errors, values and `functions`.
"""
