"""One class per method, each with loss and encode."""
