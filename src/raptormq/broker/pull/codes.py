"""What a pull that ends without messages is answered with (``PullMessageProcessor``):

=====================================  ====================================
FOUND                                  0
NO_MATCHED_MESSAGE, MESSAGE_WAS_...    20: ask again from ``nextBeginOffset``
NO_..._QUEUE                           19 for offset 0, else 21
OFFSET_OVERFLOW_ONE                    19, or held
OFFSET_OVERFLOW_BADLY, TOO_SMALL       21: ask again from ``nextBeginOffset``
OFFSET_RESET                           21: an administrator has moved the group
=====================================  ====================================
"""

from __future__ import annotations

from raptormq.protocol.codes import ResponseCode
from raptormq.storage.read import GetResult, GetStatus

_CODES = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


def empty_code(result: GetResult, offset: int) -> ResponseCode:
    """Return the code for a pull at ``offset`` that found ``result``, which is not FOUND."""
    code = _CODES.get(result.status)
    if code is not None:
        return code
    # No such queue yet, or nothing in it: normal for a consumer that starts at 0, else its offset is from another life.
    return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
