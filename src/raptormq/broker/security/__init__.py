"""Access control of the broker: ``required_permissions`` determines the required permissions from the fields of a
request, ``authorized_records`` from the requested record.

:mod:`raptormq.security` implements users, ACLs and signatures.
"""
