"""Transactional messages: halves that nobody sees until their producer has decided."""
