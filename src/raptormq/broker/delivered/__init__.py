"""Finds in the log which records the broker has delivered: each copy names the record that it was made from."""
