"""What the page `book/icl/one-layer` promises and its build cannot show."""

import numpy as np
import pytest
import torch
from pages import names

from attncore import incontext
from attncore.course.check import NotDone, PropertyViolated


@pytest.fixture(scope="module")
def page():
    return names("icl/one-layer", ("import ", "def full_layer", "def loss_by_definition", "def votes",
                                   "def votes_by_softmax"))


def test_the_stub_is_no_answer(page, capsys):
    with pytest.raises(NotDone):
        page["votes"](page["some_q"], page["some_c"])
    page["a_fair_count"].attempt(page["votes"], page["some_q"], page["some_c"])
    assert "Not done yet" in capsys.readouterr().out


def naive(q, c):
    heavy = c * q.exp()
    return heavy / heavy.sum(-1, keepdim=True)


def without_counts(q, c):
    return torch.softmax(q.expand(4, 50, 4), -1)


def scaled_by_all_kinds(q, c):
    heavy = c * (q - q.max(-1, keepdim=True).values).exp()
    return heavy / heavy.sum(-1, keepdim=True)


def smoothed(q, c):
    return torch.softmax(q + (c + 1e-9).log(), -1)


@pytest.mark.parametrize("wrong", [naive, without_counts, scaled_by_all_kinds, smoothed,
                                   lambda q, c: (c / 9.0).expand(4, 50, 4),
                                   lambda q, c: torch.softmax(q * c, -1)])
def test_wrong_counts_violate_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["a_fair_count"](wrong(page["some_q"], page["some_c"]))


def test_right_counts_pass_however_they_are_computed(page, capsys):
    q, c = page["some_q"], page["some_c"]

    def by_hand(q, c):
        present = torch.where(c > 0, q, -torch.inf)
        heavy = c * (present - present.max(-1, keepdim=True).values).exp()
        return heavy / heavy.sum(-1, keepdim=True)

    page["a_fair_count"](page["votes_by_softmax"](q, c))
    page["a_fair_count"](by_hand(q, c))
    page["a_fair_count"](by_hand(q, c).numpy())
    assert capsys.readouterr().out.count("Holds") == 3


@pytest.mark.parametrize("seed", range(6))
def test_counts_and_definition_agree_on_other_settings(page, seed):
    rng = np.random.default_rng(seed)
    K, N = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    d = K + int(rng.integers(0, 3))
    V = torch.linalg.qr(torch.tensor(rng.normal(size=(d, K))))[0].T
    Q, p = torch.tensor(rng.normal(size=(d, d)) * 2), rng.dirichlet(np.ones(K))
    for k in range(K):
        slow = page["loss_by_definition"](Q, V, p, k, N)
        torch.testing.assert_close(slow, incontext.column_gradient(V @ Q @ V[k], p, k, N)[0])
