"""Triples out of environments."""
