"""JSON bodies of requests and responses, one module per family; all read fastjson's dialect (see
:mod:`.tolerant_json`).
"""
