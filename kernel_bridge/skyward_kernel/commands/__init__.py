"""The commands of `%sky`, each written once: a handler with its name, arguments and help, and where it is offered.

Imports the pools of the kernel; a notebook is a protocol, which `skyward_jupyter` implements.
"""
