"""The examples in the docstrings of the package are run."""

import doctest
import importlib
import pkgutil

import pytest

import attncore

MODULES = [m.name for m in pkgutil.walk_packages(attncore.__path__, "attncore.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_the_entry_point_has_an_example():
    module = importlib.import_module("attncore.svm.solve")
    assert doctest.testmod(module).attempted >= 2
