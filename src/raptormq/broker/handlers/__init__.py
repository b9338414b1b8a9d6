"""Request handlers, one area per module.

Each class receives what its area needs and registers its request codes with the router (``register``). A new request
code is one line there and one method.
"""
