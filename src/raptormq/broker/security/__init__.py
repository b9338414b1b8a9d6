"""What the broker's requests need: ``demands`` by what they say, ``placed_records`` by the message that they name.

:mod:`raptormq.security` has the rest of access control.
"""
