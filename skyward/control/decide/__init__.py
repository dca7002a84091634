"""The control plane as pure steps: `state, message, now -> effects`. No I/O, no clock, no randomness.

`plane` composes the task manager, the autoscaler and the reconciler. Imports values, policies and events.
"""
