"""palpate."""
