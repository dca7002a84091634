"""The health of this computer, and the names of the program that other distributions have too."""
