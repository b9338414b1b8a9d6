"""The send path. All sends from one socket read are validated, appended with one write and answered together.

:mod:`.admission` converts requests to records, :mod:`.send_service` appends them, :mod:`.answers` encodes the
responses, and :mod:`.pending_answers` delays responses until the store confirms the records.
"""
