"""`@sky.function`: the decorator, its signature rules, pending calls and groups, and the operators that send them.

Imports values and specs; pool types for annotations only.
"""
