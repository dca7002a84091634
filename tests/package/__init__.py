"""The package as its users install it: contents of the archives, and fresh environments with old and new packages."""
