"""Scores of a representation."""
