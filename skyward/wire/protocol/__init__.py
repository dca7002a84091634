"""Messages between client and node, each typed once, with their validation and flow control.

Imports values.
"""
