"""Access control (RocketMQ's ACL 2.0), for brokers and name servers: who sent a request, and may he.

``users`` and ``acls`` are the tables, ``tables`` their files, ``resources`` what is protected, ``settings`` what an
operator chooses, ``full_signatures`` what is asked of signatures that RocketMQ does not know, and ``gate`` the one
place through which all requests go. What each request needs is the server's own matter: it hands that to the gate.
"""
