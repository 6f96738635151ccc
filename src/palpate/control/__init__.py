"""Environments whose observations are positions, and PPO on them."""
