"""The field values of a received message, to construct a copy of a subclass of `MessageExt`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from raptormq.protocol.message import MessageExt

values_of: Callable[[MessageExt], tuple[Any, ...]] = attrgetter(*(each.name for each in fields(MessageExt)))
"""Returns the values of the fields of `MessageExt`, in their order."""
