"""Request handlers, one family per module.

Each class takes the few things its family needs and enters itself into the router's table by :meth:`register`; a new
request code is one line there and one method.
"""
