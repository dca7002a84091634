"""The planner of Ray's autoscaler v2, in its own terms."""
