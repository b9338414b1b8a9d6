"""POP consumption: a popped message is invisible to other consumers until it is acknowledged or its time is up.

- ``pop_service`` reads messages for a pop, ``held_pops`` holds pops that found none.
- ``revive_log`` writes checkpoints and acknowledgements, ``outstanding`` tracks the unacknowledged messages in memory.
- ``revive_service`` returns messages that are not acknowledged in time.
- ``orderly_pops`` blocks the queues of orderly groups.
"""
