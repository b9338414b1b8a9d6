"""Transactional messages: half messages stay invisible to consumers until their producer commits or rolls back."""
