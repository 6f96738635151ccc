"""The losses of the paper and of this package, one value per sample; the caller averages."""
