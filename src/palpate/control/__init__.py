"""Acting on what was learned: environments whose observations are positions, and PPO in them."""
