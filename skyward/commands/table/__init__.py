"""The table of all commands and of the options of pools, from which `skyward`, `%sky`, `%%sky` and the panel are made.

Each command and each option is declared here once; front ends bind handlers to the commands that they have. Imports
anything below the command line, in functions: `skyward --help` loads all of the table.
"""
