"""The asyncio shell around :mod:`raptormq.protocol`, shared by name server, broker and client: who speaks, when, and
for how long.
"""
