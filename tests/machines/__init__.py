"""Real machines over SSH, on this host."""
