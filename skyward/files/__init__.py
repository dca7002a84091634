"""Files that travel with a cell: which there are, what is to be done about each, and how they are read and written.

The notebook's folder is the hub. A node has a working folder, in which the cell runs. `plan` decides what becomes of
each file from the versions on both sides, `patterns` which files are meant; neither touches a disk. `disk` reads and
writes, `request` is what crosses.
"""
