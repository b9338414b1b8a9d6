"""The send path: everything one read brought is admitted, appended with one write and answered as one group.

:mod:`.admission` turns requests into records, :mod:`.answers` makes the responses, :mod:`.group` is the handler
between them and the store.
"""
