"""Foundation of all frozen values: validation with one-sentence errors, limits, and the resource needs of a task.

Imports errors and formatting.
"""
