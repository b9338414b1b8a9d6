"""Transactional messages. A half message is invisible to consumers until its producer commits it."""
