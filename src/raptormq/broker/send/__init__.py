"""The send path: all sends from one socket read are validated, appended with one write and answered together.

:mod:`.admission` converts requests to records, :mod:`.answers` encodes the responses, :mod:`.send_service` connects
them with the store, and :mod:`.pending_answers` holds responses until the store confirms the records.
"""
