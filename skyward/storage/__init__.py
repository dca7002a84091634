"""Object storage: locations, listing, and transfers in parts."""
