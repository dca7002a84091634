"""The control plane: task manager, nodes and pool, decided without I/O and carried out by one shell."""
