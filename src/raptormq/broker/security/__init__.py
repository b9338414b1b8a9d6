"""Access control of the broker: ``required_permissions`` determines the permissions that a request requires by its
fields, ``authorized_records`` those that depend on the requested message.

:mod:`raptormq.security` implements users, ACLs and signatures.
"""
