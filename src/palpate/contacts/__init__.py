"""Which triples are in contact."""
