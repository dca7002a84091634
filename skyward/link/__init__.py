"""The client's end of a node: starting its worker, messages, the bulk path."""
