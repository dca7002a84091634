"""Containers of a real engine, on this host."""
