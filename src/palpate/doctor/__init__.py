"""Check whether positions can be learned from triples: first the arrays, then a short training run."""
