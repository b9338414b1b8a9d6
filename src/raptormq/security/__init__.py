"""Access control (RocketMQ's ACL 2.0) for brokers and name servers: authentication and authorization of requests.

``users`` and ``acls`` are the tables, ``tables`` their files, ``resources`` the protected resources, ``settings`` the
operator's choices, ``full_signatures`` the check of RaptorMQ's own signatures, and ``gate`` the one place that all
requests pass. A server supplies the permissions that each of its requests requires.
"""
