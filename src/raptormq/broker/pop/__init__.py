"""POP consumption: messages are handed out one by one, invisible to others until they are acknowledged or time is up.

``waiters`` holds empty pops, ``popper`` takes messages, ``checkpoints`` writes down what was taken, ``outstanding``
knows what is not acknowledged yet, ``revival`` brings it back, ``order`` keeps orderly groups in line.
"""
