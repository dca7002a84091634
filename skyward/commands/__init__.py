"""Commands as values: their arguments, options and help, from which they are parsed, explained and completed.

Imports the specs, whose texts it parses; does no I/O.
"""
