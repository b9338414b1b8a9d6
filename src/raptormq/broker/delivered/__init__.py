"""Finds the delivered records in the log. Each copy that the broker delivers records its origin."""
