"""The control plane: task manager, nodes and pool. Decisions are pure steps; `act` executes their effects."""
