"""Object storage over the S3 interface: listing, transfers in parts that resume, and credentials.

Uses the standard library only, so that a node needs nothing else. `location` says where; `listing`, `download`,
`upload`, `deletion` and `trees` act on it; `scoped` makes short-lived credentials.
"""
