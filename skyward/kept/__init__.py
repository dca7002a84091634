"""Values that stay on their nodes: `sky.keep`, the handles that represent them, and the registry of what is kept where.

Imports values and pending calls; `wire` for annotations only.
"""
