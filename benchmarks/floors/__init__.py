"""The floors: the least that each figure could cost on this machine, with the library left out."""
