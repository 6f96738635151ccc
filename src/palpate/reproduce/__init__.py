"""The paper's comparisons: their cases, runs and results."""
