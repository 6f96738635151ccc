"""Collecting while learning: the model's uncertainty chooses part of the moves."""
