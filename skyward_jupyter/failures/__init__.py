"""Errors of cells, displayed by IPython like its own: tracebacks with node frames, and user errors as one sentence.

Imports the wire formats of failures.
"""
