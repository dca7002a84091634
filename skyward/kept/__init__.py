"""Values that stay on their nodes: `sky.keep`, the handles that stand for them, and the book of which node has which.

Imports values and pending calls; `wire` for annotations only.
"""
