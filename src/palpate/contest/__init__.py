"""PPO runs on learned positions, and their comparison."""
