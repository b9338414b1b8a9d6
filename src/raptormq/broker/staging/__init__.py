"""Staged messages: the tasks of a batch store them, and one commit request publishes all of them."""
