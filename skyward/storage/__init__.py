"""Object stores that speak the S3 interface: listing, and transfers in parts that go on where they were interrupted.

Importable on a node; obstore, which sends the requests, is loaded when one is sent. `location` says where the objects
are; `listing`, `download`, `upload`, `deletion` and `trees` act on them; `scoped` makes short-lived credentials.
"""
