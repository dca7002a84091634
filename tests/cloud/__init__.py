"""Providers of clouds, against servers of ours and machines of ours."""
