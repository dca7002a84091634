"""The panel's side of a kernel: the rows that it shows, the messages, and the bridge that exchanges them.

Imports the pools and the commands of the kernel.
"""
