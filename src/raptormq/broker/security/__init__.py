"""Access control (RocketMQ's ACL 2.0): who sent a request, and may he.

``users`` and ``acls`` are the tables, ``resources`` what is protected, ``demands`` what each request needs, and
``gate`` the one place through which all requests go.
"""
