"""The transport of bytes and its security: the bulk path, transfers between nodes, mutual proof, certificates.

Imports `process`.
"""
