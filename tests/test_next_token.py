"""Next-token problems: the graph, the loss and its convexity, the cyclic part, and random draws."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attncore.attention import attention_logits
from attncore.next_token import cyclic_part, next_token, random_next_token
from attncore.training import train


def made(seed, **more):
    return random_next_token(**{"size": 5, "d": 6, "n": 7, "T": 3, "seed": seed, **more})


def loss_of(problem, W, within=False):
    """The loss of single problems, written out; restricted to components if asked."""
    h = attention_logits(problem.prob.X, W, problem.prob.z)
    own = problem.words == problem.labels.unsqueeze(-1)
    everything = h.masked_fill(~problem.mask, -math.inf) if within else h
    return (everything.logsumexp(-1) - h.masked_fill(~own, -math.inf).logsumexp(-1)).mean(-1)


def reachable(problem):
    """Masks by definition: a word is in the label's component if each leads to the other."""
    mask = torch.zeros_like(problem.mask)
    for i, (words, label) in enumerate(zip(problem.words, problem.labels, strict=True)):
        edges = {}
        for other, head in zip(problem.words, problem.labels, strict=True):
            if other[-1] == words[-1]:
                edges.setdefault(int(head), set()).update(other.tolist())

        def leads(a, b, edges=edges):
            seen, todo = {a}, [a]
            while todo:
                for k in edges.get(todo.pop(), ()):
                    if k not in seen:
                        seen.add(k)
                        todo.append(k)
            return b in seen

        for t, word in enumerate(words.tolist()):
            mask[i, t] = leads(int(label), word) and leads(word, int(label))
    return mask


@pytest.mark.parametrize("seed", range(20))
def test_components_by_reachability(seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 5, (8, 3))
    words[:, -1] = rng.integers(0, 2, 8)
    labels = words[np.arange(8), rng.integers(0, 3, 8)]
    problem = next_token(rng.normal(size=(5, 6)), words, labels)
    assert torch.equal(problem.mask, reachable(problem))


@pytest.mark.parametrize("seed", range(6))
def test_training_descends_the_loss_written_out(seed):
    problem = made(seed)
    W0 = torch.tensor(np.random.default_rng(seed).normal(size=(6, 6)))
    run = train(problem.prob, steps=1, lr=0.3, normalized=False, init=W0, loss=problem.loss, head=problem.head)
    torch.testing.assert_close(run.loss[0], loss_of(problem, W0))
    W = W0.clone().requires_grad_()
    loss_of(problem, W).backward()
    torch.testing.assert_close(run.W[1], W0 - 0.3 * W.grad)


@pytest.mark.parametrize("seed", range(6))
def test_the_loss_is_convex(seed):
    problem, rng = made(seed), np.random.default_rng(seed)
    for _ in range(20):
        A, B = (torch.tensor(4 * rng.normal(size=(6, 6))) for _ in range(2))
        assert loss_of(problem, (A + B) / 2) <= (loss_of(problem, A) + loss_of(problem, B)) / 2 + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_the_cyclic_part_is_the_minimiser(seed):
    problem = made(seed, n=12, contexts=1, ties=5)
    part = cyclic_part(problem)
    torch.testing.assert_close(part.floor, loss_of(problem, part.W, within=True))
    torch.testing.assert_close(part.project(part.W), part.W)
    W = part.W.clone().requires_grad_()
    loss_of(problem, W, within=True).backward()
    assert W.grad.norm() < 1e-12
    found = minimize(lambda w: float(loss_of(problem, torch.tensor(w).reshape(6, 6), within=True)), np.zeros(36))
    assert found.fun == pytest.approx(float(part.floor), abs=1e-8)
    torch.testing.assert_close(part.project(found.x.reshape(6, 6)), part.W, atol=2e-3, rtol=0)


def test_copies_of_the_label_count_together():
    problem = next_token(np.eye(3), [[0, 0, 1, 2], [0, 1, 1, 2]], [0, 1])
    run = train(problem.prob, steps=0, loss=problem.loss, head=problem.head)
    assert float(run.loss[0]) == pytest.approx(math.log(2))
    part = cyclic_part(problem)
    assert float(part.floor) == pytest.approx(math.log(1.5)) and part.W.norm() < 1e-12


def test_without_ties_there_is_no_cycle():
    part = cyclic_part(made(0, ties=1, batch=3))
    assert part.W.shape == (3, 6, 6) and not part.W.any() and not part.floor.any() and not part.projector.any()


def test_draws():
    small, large = made(5, batch=2), made(5, batch=(2, 2))
    assert torch.equal(small.words, large.words[0]) and torch.equal(small.prob.X, large.prob.X[0])
    assert bool((small.words[..., -1] < 2).all()) and bool((small.words.sort(-1).values.diff() > 0).all())
    assert torch.equal(small.prob.z, small.prob.X[..., -1, :])
    assert bool(large.mask.any(-1).all()) and 0.3 < large.mask.double().mean() < 0.9


@pytest.mark.parametrize(("words", "change"), [
    ("labels must occur", {"labels": [2]}),
    ("linearly independent", {"embeddings": np.ones((3, 4))}),
    ("words must have shape", {"words": [0, 1]}),
    ("embeddings must have shape", {"embeddings": [1.0, 2.0]}),
    ("words", {"words": [[0, 7]]}),
])
def test_bad_words(words, change):
    with pytest.raises(ValueError, match=words):
        next_token(**{"embeddings": np.eye(3, 4), "words": [[0, 1]], "labels": [0], **change})


@pytest.mark.parametrize(("words", "change"), [
    ("size must be between", {"size": 9}), ("size must be between", {"T": 6}), ("contexts must be", {"contexts": 6}),
])
def test_bad_sizes(words, change):
    with pytest.raises(ValueError, match=words):
        made(0, **change)


def test_the_cyclic_part_wants_a_problem():
    with pytest.raises(TypeError, match="problem must be a NextToken"):
        cyclic_part(made(0).prob)
