"""What nodes share: the actors that keep the collections of a pool, and what speaks to them from either end."""
