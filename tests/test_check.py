"""Exercise checks: a stub never passes, a wrong answer is named with a witness, a right one says what holds."""

import numpy as np
import pytest
import torch

from attncore.course.check import NotDone, PropertyViolated, property_check, that


@property_check
def sums_to_one(weights):
    "The weights are nonnegative and sum to one."
    that(np.min(weights) >= 0, "no weight is negative", witness=np.min(weights))
    that(abs(np.sum(weights) - 1) < 1e-12, "the weights sum to one", witness=np.sum(weights))


def stub(x):
    raise NotDone("write the softmax")


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


@pytest.mark.parametrize("missing", [None, ...])
def test_a_missing_answer_is_not_done(missing):
    with pytest.raises(NotDone, match="sums to one"):
        sums_to_one(missing)


def test_a_stub_fails_the_strict_check():
    with pytest.raises(NotDone, match="write the softmax"):
        sums_to_one(stub([1.0, 2.0]))


def test_an_attempted_stub_says_what_is_to_show(capsys):
    sums_to_one.attempt(stub, [1.0, 2.0])
    said = capsys.readouterr().out
    assert said.startswith("Not done yet (write the softmax)")
    assert "nonnegative and sum to one" in said


def test_a_stub_of_three_dots_is_not_done(capsys):
    sums_to_one.attempt(lambda x: ..., [1.0])
    assert "Not done yet" in capsys.readouterr().out


def test_a_right_answer_says_what_holds(capsys):
    sums_to_one.attempt(softmax, np.array([1.0, 2.0]))
    assert capsys.readouterr().out == "Holds: The weights are nonnegative and sum to one.\n"


@pytest.mark.parametrize("run", [sums_to_one, lambda w: sums_to_one.attempt(lambda: w)])
def test_a_wrong_answer_raises_with_property_and_witness(run):
    with pytest.raises(PropertyViolated, match=r"the weights sum to one; seen: .*1\.5"):
        run(np.array([0.5, 1.0]))


def test_an_error_in_the_readers_code_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        sums_to_one.attempt(lambda: 1 / 0)


def test_both_failures_are_assertion_errors():
    assert issubclass(NotDone, AssertionError) and issubclass(PropertyViolated, AssertionError)


@pytest.mark.parametrize("truth", [True, np.bool_(True), torch.tensor(True), 1])
def test_truth_values_of_every_library(truth):
    that(truth, "it is true")


@pytest.mark.parametrize("condition", [None, ..., lambda: True])
def test_a_condition_without_a_truth_value(condition):
    with pytest.raises(TypeError, match="condition"):
        that(condition, "it is true")


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_property_needs_words(name):
    with pytest.raises(TypeError, match="property_name"):
        that(True, name)


def test_a_check_needs_a_docstring():
    def silent(x):
        that(x, "x")

    with pytest.raises(TypeError, match="silent needs a docstring"):
        property_check(silent)


@pytest.mark.parametrize("bad", [3, None])
def test_only_functions_are_checks_and_attempts(bad):
    with pytest.raises(TypeError, match="callable"):
        property_check(bad)
    with pytest.raises(TypeError, match="the function you wrote"):
        sums_to_one.attempt(bad)
