"""Ends what pools have left: orphans in the journal, resources without a pool in the accounts, and warm machines."""
