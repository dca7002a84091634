"""Events on their way home: acknowledgements, captured output, and the task that each belongs to.

Imports messages, `process` and `task`.
"""
