"""Rich output of a node: MIME bundles, figures, and IPython's display functions.

Imports `worker.events`; matplotlib and IPython only where user code has imported them.
"""
