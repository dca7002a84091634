"""Internals that front ends use besides the public API: the Jupyter packages import the library through here only.

Names may change with every release; `tests/house.py` holds that each one is used. Imports anything below the door.
"""
