"""Parts that the providers of AWS share: the session, errors, launches that are repeated, networks, credentials."""
