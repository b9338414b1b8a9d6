"""Access control (RocketMQ's ACL 2.0) for brokers and name servers: authentication and authorization of requests.

``users`` and ``acls`` implement the tables, ``tables`` their files, ``resources`` the protected resources, ``settings``
the settings, ``full_signatures`` the verification of RaptorMQ's signatures, and ``gate`` the check of every request. A
server supplies a function that returns the required permissions of a request.
"""
