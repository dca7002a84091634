"""Floors: the least that each figure could cost on this machine, without the library."""
