"""The machine under a node: CPU, memory and GPU usage, control groups, /proc.

Imports messages and metrics.
"""
