"""Errors of cells as IPython shows its own: tracebacks with node frames, and user errors as one sentence.

Imports failures as they travel.
"""
