"""Can these triples give positions? The arrays first, then a short training run for the rest."""
