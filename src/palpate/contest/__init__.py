"""Control policies trained on learned positions, and their comparison."""
