"""What the requests of a broker need: ``required_permissions`` by their fields, ``placed_records`` by the message that
they name.

:mod:`raptormq.security` has the rest of access control.
"""
