"""The `sky` command: argument parsing, one function for each subcommand, and the tables they print.

Imports the public API, the simulator and the values of specs.
"""
