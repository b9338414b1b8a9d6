"""POP consumption. A popped message is invisible to other consumers until it is acknowledged or its invisible time
expires.

- ``request_validator`` checks requests, ``queue_order`` selects the queues of a pop.
- ``pop_service`` reads messages for a pop. ``held_pops`` implements long polling.
- ``revive_log`` writes checkpoints and acknowledgements. ``outstanding`` tracks unacknowledged messages in memory.
- ``revive_service`` makes messages that were not acknowledged in time available again.
- ``orderly_pops`` blocks the queues of orderly groups. ``popped_messages`` combines ``orderly_pops`` and
  ``revive_log``.
"""
