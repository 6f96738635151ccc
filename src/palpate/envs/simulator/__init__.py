"""MuJoCo, for the worlds that it simulates and draws. Importing this does not import MuJoCo."""
