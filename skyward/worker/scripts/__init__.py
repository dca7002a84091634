"""Scripts and commands on a node: processes of their own, whose output is a stream of bytes.

Imports what runs tasks and places files.
"""
