"""What requests to the broker need: ``required_permissions`` by their fields, ``authorized_records`` by the message
that they name.

:mod:`raptormq.security` has the rest of access control.
"""
