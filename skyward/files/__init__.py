"""Files that are sent with a cell: which there are, what to do with each, and how they are read and written.

The notebook's folder is the hub. A node has a working folder, in which the cell runs. `plan` decides about each file
from the versions on both sides, and `patterns` selects files; neither touches a disk. `disk` reads and writes, and
`request` holds the messages.
"""
