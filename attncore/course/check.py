"""Checks for exercises: they test properties of an answer, never compare it with a stored key.

How to use it on a page
-----------------------
Write the property once, in a visible cell before the exercise, as a decorated function::

    from attncore.course.check import property_check, that

    @property_check
    def separates(W):
        "W separates the selected token from all others in every sequence."
        margins = ...
        that(margins.min() > 0, "every margin is positive", witness=margins.min())

The exercise cell holds the stub and the call; the stub raises `NotDone` (or leaves ``...``)::

    def my_direction(X, z, selected):
        raise NotDone("build W from the duals")

    separates.attempt(my_direction, X, z, selected)

`attempt` calls the reader's function on the arguments and checks what it returns. An untouched stub prints
"not done yet" and the page still builds; a wrong answer raises `PropertyViolated`, which names the property and
shows a witness. The folded solution calls the *same* check strictly, so a solution that no longer holds fails
the build::

    separates(solution(X, z, selected))          # raises on the stub, passes here

Tests may call ``separates(stub(...))`` and expect `NotDone`: a check that a stub passes is no check.
"""

from __future__ import annotations

import functools
import inspect

from attncore.validation import short


class NotDone(AssertionError):
    """The exercise is still a stub."""


class PropertyViolated(AssertionError):
    """An answer lacks a property that the exercise asks for; the message names it and shows a witness."""


def that(condition, property_name: str, witness=None) -> None:
    """Require one property.

    Parameters
    ----------
    condition : bool
        A truth value; also a zero-dimensional array or tensor. Arrays must be reduced by the caller.
    property_name : str
        What should hold, as a sentence without a full stop: ``"every margin is positive"``.
    witness : object, optional
        The value or the case in which it fails, shown to the reader.

    Raises
    ------
    PropertyViolated
        If ``condition`` is false.
    TypeError
        If ``property_name`` is not a sentence or ``condition`` has no truth value.
    """
    if not isinstance(property_name, str) or not property_name.strip():
        raise TypeError(f"property_name must say in words what should hold, got {short(property_name)}")
    if condition is None or condition is Ellipsis or callable(condition):
        raise TypeError(f"condition must be a truth value, got {short(condition)}")
    if not bool(condition):
        seen = "" if witness is None else f"; seen: {short(witness)}"
        raise PropertyViolated(f"this should hold but does not: {property_name}{seen}")


class PropertyCheck:
    """A check made by `property_check`: call it on an answer, or let it `attempt` the reader's function."""

    def __init__(self, function):
        self._function = function
        self.name = function.__name__.replace("_", " ")
        self.states = inspect.getdoc(function)
        functools.update_wrapper(self, function)

    def __call__(self, answer, *args, **kwargs) -> None:
        """Check ``answer`` strictly: `NotDone` for a missing one, `PropertyViolated` for a wrong one."""
        if answer is None or answer is Ellipsis:
            raise NotDone(f"{self.name}: there is no answer to check yet (got {answer})")
        self._function(answer, *args, **kwargs)
        print(f"Holds: {self.states}")

    def attempt(self, function, *args, **kwargs) -> None:
        """Run the reader's ``function(*args, **kwargs)`` and check what it returns.

        An untouched stub prints a line and returns, so that the page builds; every other failure is raised.
        """
        if not callable(function):
            raise TypeError(f"function must be the function you wrote, got {short(function)}")
        try:
            self(function(*args, **kwargs))
        except NotDone as stub:
            print(f"Not done yet ({stub}).\nTo show: {self.states}")


def property_check(function) -> PropertyCheck:
    """Turn ``function(answer, ...)`` into a named `PropertyCheck`.

    Raises
    ------
    TypeError
        If the function has no docstring: the docstring is the property that readers see.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {short(function)}")
    if not inspect.getdoc(function):
        raise TypeError(f"{function.__name__} needs a docstring that states the property")
    return PropertyCheck(function)
