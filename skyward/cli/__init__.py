"""The commands `skyward` and `sky`: one module for each command, or for a few that are alike.

The table of commands declares them; `main` parses the words, and loads the module of the command. Imports the public
API, the simulator and the values of specs.
"""
