"""The parts of plugins that run on nodes.

Modules here import only the standard library and what a worker has; frameworks are imported in functions.
"""
