"""State that the nodes of a pool share: the actors that store its collections, and their clients in each process."""
