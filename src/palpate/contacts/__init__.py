"""Which triples were in contact."""
