"""Access control of the broker: ``required_permissions`` has the rules that determine the required permissions from
the fields of a request; ``authorized_records`` determines them from the requested record.

:mod:`raptormq.security` implements users, ACLs and signatures.
"""
