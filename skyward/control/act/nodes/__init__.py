"""One client-side object for each node, and what launches, connects, replicates to, and retires nodes.

Imports `act.tasks`, `decide`, `link`, `bootstrap` and `offers`.
"""
