"""Triples: in memory, on disk, generated on the device."""
