"""Request handlers, one area per module.

Each class registers its request codes with the router in ``register``. A new request code is one line in ``register``
and one method.
"""
