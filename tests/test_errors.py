"""The error tree: errors as results of other processes."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator

import pytest

from raptormq import errors
from raptormq.errors import RaptorMQError, SendAttempt

ATTEMPT = SendAttempt("b", "a", 0.1, "code 2", may_be_stored=True)


def all_types(base: type[RaptorMQError] = RaptorMQError) -> Iterator[type[RaptorMQError]]:
    if base.__module__ == errors.__name__:
        yield base
    for derived in base.__subclasses__():
        yield from all_types(derived)


def an_error(error_type: type[RaptorMQError]) -> RaptorMQError:
    """Return an error of a type, with any arguments."""
    values = {"cause": ValueError("bad"), "remark": "busy", "peer": "1.2.3.4:5"}
    names = [] if error_type.__init__ is Exception.__init__ else list(inspect.signature(error_type).parameters)
    return error_type(*(values.get(name, number) for number, name in enumerate(names, 2)) if names else ("text",))


@pytest.mark.parametrize("error_type", list(all_types()), ids=lambda each: each.__name__)
def test_an_error_is_the_same_in_another_process(error_type: type[RaptorMQError]) -> None:
    error = an_error(error_type).with_attempts([ATTEMPT])
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is error_type
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)
