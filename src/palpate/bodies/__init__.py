"""Shapes of what the agent touches."""
