"""Worlds: where triples come from."""
