"""Whole experiments: what the verbs of the command line do."""
