r"""Next-token prediction by one attention layer: the graph of a data set, and what training should find in it.

A sequence is a list of words; the last one is the query, and its label is a word that occurs in it. The layer
predicts by copying, ``P(k) = sum of s_it over the positions t that hold word k``, and the loss is ``-log P(label)``:
logistic regression on the differences ``(x_label - x_t) z_i^T``, so convex in W.

Source: Li, Huang, Ildiz, Rawat, Oymak, *Mechanics of Next Token Prediction with Self-Attention* (arXiv 2403.08081).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components

from attncore.data import TokenSelection, batch_shape, problem_generators
from attncore.heads import Head
from attncore.losses import Loss
from attncore.validation import as_indices, as_tensor, positive_int, short

__all__ = ["CyclicPart", "NextToken", "cyclic_part", "next_token", "random_next_token"]


@dataclass(frozen=True)
class NextToken:
    """A next-token problem, ready for :func:`attncore.training.train`.

    Attributes
    ----------
    prob : TokenSelection
        Embedded words (..., n, T, d); the query of a sequence is its last word. Labels `y` are 1 and the head
        `v` is 0: both are unused, `head` reads off the probability of the label instead.
    head : Head
        ``a -> c_label^T a`` with ``c_j^T e_k = 1`` if j = k and else 0.
    loss : Loss
        ``-log u``.
    embeddings : (..., V, d)
    words : (..., n, T) int64
    labels : (..., n) int64
    mask : (..., n, T) bool
        Tokens in the same strongly connected component as the label, in the graph of the sequence's last word,
        which has an edge from the label to each word of every sequence that ends in this word.
    """

    prob: TokenSelection
    head: Head
    loss: Loss
    embeddings: torch.Tensor
    words: torch.Tensor
    labels: torch.Tensor
    mask: torch.Tensor


def _log_slope(u):
    return -(np.log(u) if isinstance(u, np.ndarray) else torch.log(u))


LOG_LOSS = Loss("log", lambda u: -torch.log(u), _log_slope, takes_numpy=True)


def next_token(embeddings, words, labels) -> NextToken:
    """Build a next-token problem from words.

    Parameters
    ----------
    embeddings : array_like (..., V, d)
        One row a word, linearly independent.
    words : array_like of int (..., n, T)
        The words of each sequence; the last one is the query.
    labels : array_like of int (..., n)
        The next word, one of the words of its sequence.

    Returns
    -------
    NextToken

    Raises
    ------
    TypeError, ValueError
        For words outside the vocabulary, a label that does not occur, dependent embeddings, leading axes that differ.

    Examples
    --------
    Words 0 and 1 both follow, each before the other: one component. Word 2 comes after both.

    >>> made = next_token([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 2], [0, 1, 2]], [0, 1])
    >>> made.mask.tolist()
    [[True, True, False], [True, True, False]]
    """
    E = as_tensor(embeddings, "embeddings")
    if E.ndim < 2:
        raise ValueError(f"embeddings must have shape (..., V, d), got {short(E)}")
    size, batch = E.shape[-2], E.shape[:-2]
    words = as_indices(words, "words", size, device=E.device)
    labels = as_indices(labels, "labels", size, device=E.device)
    if words.ndim < 2 or words.shape[:-2] != batch or labels.shape != words.shape[:-1]:
        raise ValueError(f"words must have shape {(*batch, 'n', 'T')} and labels {(*batch, 'n')} to match embeddings, "
                         f"got {short(words)} and {short(labels)}")
    if not bool((words == labels.unsqueeze(-1)).any(-1).all()):
        raise ValueError("labels must occur in their sequences, got one that does not")
    if bool((torch.linalg.matrix_rank(E) < size).any()):
        raise ValueError(f"embeddings must be linearly independent, got {short(E)} of less rank")
    X = _rows(E, words)
    reads = _rows(torch.linalg.pinv(E).mT, labels)
    mask = _components(words.cpu().numpy(), labels.cpu().numpy(), size)
    y, v = X.new_ones(labels.shape), X.new_zeros(*batch, X.shape[-1])
    head = Head("label", lambda a, v: (a * reads).sum(-1), lambda a, v: reads, linear=True)
    return NextToken(TokenSelection(X, X[..., -1, :], y, v), head, LOG_LOSS, E, words, labels, mask.to(E.device))


def _rows(E, index):
    """Rows of ``E (..., V, d)`` at ``index (..., *)``."""
    flat = index.reshape(*E.shape[:-2], -1, 1).expand(*E.shape[:-2], -1, E.shape[-1])
    return E.gather(-2, flat).reshape(*index.shape, E.shape[-1])


def _components(words, labels, size) -> torch.Tensor:
    mask = np.zeros(words.shape, bool)
    for found, seqs, nexts in zip(*(a.reshape(-1, *a.shape[k:]) for a, k in
                                    ((mask, mask.ndim - 2), (words, words.ndim - 2), (labels, labels.ndim - 1))),
                                  strict=True):
        for last in np.unique(seqs[:, -1]):
            rows = np.flatnonzero(seqs[:, -1] == last)
            edges = np.zeros((size, size), bool)
            for i in rows:
                edges[nexts[i], seqs[i]] = True
            component = connected_components(edges, connection="strong")[1]
            found[rows] = component[seqs[rows]] == component[nexts[rows], None]
    return torch.from_numpy(mask)


def random_next_token(size: int, d: int, n: int, T: int, contexts: int = 2, ties: int = 2, seed: int = 0,
                      batch=()) -> NextToken:
    """Random next-token problems whose labels follow a hidden order of the words, one order a context.

    Embeddings are uniform on the unit sphere. Each sequence has T different words, the last one of the first
    `contexts` words. For each context the words are ranked at random in classes of `ties`; the label is a random
    one of the best class in the sequence.

    Parameters
    ----------
    size : int
        Words of the vocabulary, at most `d` (so that embeddings are independent) and at least `T`.
    d, n, T : int
        Dimension, sequences, words in each.
    contexts : int
        How many different last words there are, at most `size`.
    ties : int
        Words that share a rank; with 1 the graph has no cycle.
    seed : int
        Problem b depends on ``(seed, b)`` only.
    batch : int or tuple of int

    Returns
    -------
    NextToken

    Raises
    ------
    TypeError, ValueError
        For a size out of its range.
    """
    size, d, n, T, contexts, ties = (positive_int(value, name) for value, name in (
        (size, "size"), (d, "d"), (n, "n"), (T, "T"), (contexts, "contexts"), (ties, "ties")))
    if not T <= size <= d:
        raise ValueError(f"size must be between T = {T} and d = {d}, got {size}")
    if contexts > size:
        raise ValueError(f"contexts must be at most size = {size}, got {contexts}")
    batch = batch_shape(batch)
    drawn = [_draw(rng, size, d, n, T, contexts, ties) for rng in problem_generators(seed, math.prod(batch), 2)]
    E, words, labels = (torch.from_numpy(np.stack(part)) for part in zip(*drawn, strict=True))
    return next_token(*(part.reshape(*batch, *part.shape[1:]) for part in (E, words, labels)))


def _draw(rng, size, d, n, T, contexts, ties):
    E = rng.standard_normal((size, d))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    rank = np.stack([rng.permutation(size) // ties for _ in range(contexts)])
    words, labels = np.empty((n, T), np.int64), np.empty(n, np.int64)
    for i in range(n):
        last = rng.integers(contexts)
        words[i] = np.append(rng.choice(np.delete(np.arange(size), last), T - 1, replace=False), last)
        ranks = rank[last, words[i]]
        labels[i] = rng.choice(words[i][ranks == ranks.min()])
    return E, words, labels


@dataclass(frozen=True)
class CyclicPart:
    """The part of the loss that lives within components, and its minimiser; batch shape (...) in front.

    Attributes
    ----------
    W : (..., d, d)
        The minimiser in the span S of the differences ``(x_label - x_t) z_i^T`` within components.
    floor : (...)
        Its value: the infimum of the loss, for independent embeddings.
    projector : (..., d*d, d*d)
        Orthogonal projection on S, acting on flattened matrices.
    """

    W: torch.Tensor
    floor: torch.Tensor
    projector: torch.Tensor

    def project(self, W) -> torch.Tensor:
        """The part of ``W (..., d, d)`` in S; leading axes broadcast."""
        W = as_tensor(W, "W", dtype=self.W.dtype, device=self.W.device)
        return (self.projector @ W.flatten(-2).unsqueeze(-1)).reshape(W.shape)


def cyclic_part(problem: NextToken) -> CyclicPart:
    r"""Minimise the loss restricted to components, by Newton's method in a trust region.

    .. math:: L_C(W) = \frac1n\sum_i \log
              \frac{\sum_{t \in O_i} e^{h_{it}}}{\sum_{t : x_{it} = \text{label}} e^{h_{it}}},

    with the logits ``h_it = x_it^T W z_i`` and `O_i` the tokens of `mask`. It is strictly convex on S and
    constant off it.

    Returns
    -------
    CyclicPart

    Raises
    ------
    TypeError
        If `problem` is no :class:`NextToken`.

    Examples
    --------
    Word 0 follows twice, word 1 once: probabilities 2/3 and 1/3, a difference of log 2 along (1, -1).

    >>> made = next_token([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 2]] * 3, [0, 0, 1])
    >>> (cyclic_part(made).W[:, 2] / math.log(2)).round(decimals=9).tolist()
    [0.5, -0.5, 0.0]
    """
    if not isinstance(problem, NextToken):
        raise TypeError(f"problem must be a NextToken, got {short(problem)}")
    X, z = problem.prob.X, problem.prob.z
    n, T, d = X.shape[-3:]
    parts = zip(*(a.reshape(-1, *a.shape[len(problem.prob.batch):]).cpu().numpy()
                  for a in (X, z, problem.mask, problem.words == problem.labels.unsqueeze(-1))), strict=True)
    solved = [_minimise(*part) for part in parts]
    W, floor, projector = (torch.from_numpy(np.stack(part)).to(X) for part in zip(*solved, strict=True))
    batch = problem.prob.batch
    return CyclicPart(W.reshape(*batch, d, d), floor.reshape(batch), projector.reshape(*batch, d * d, d * d))


def _minimise(X, z, mask, own):
    n, T, d = X.shape
    label = X[np.arange(n), own.argmax(-1)]
    D = ((label[:, None] - X)[..., None] * z[:, None, None]).reshape(n, T, d * d)
    left, size, _ = np.linalg.svd(D[mask].T, full_matrices=False)
    basis = left[:, size > 1e-10 * size[0]] if size[0] > 0 else left[:, :0]
    A, copies = D @ basis, np.log(own.sum(-1)).mean()

    def shares(c):
        gaps = np.where(mask, -(A @ c), -np.inf)
        top = gaps.max(-1, keepdims=True)
        e = np.exp(gaps - top)
        return e / e.sum(-1, keepdims=True), (top[:, 0] + np.log(e.sum(-1))).mean() - copies

    def value_and_gradient(c):
        s, value = shares(c)
        return value, -np.einsum("it,itp->p", s, A) / n

    def hessian(c):
        s = shares(c)[0]
        mean = np.einsum("it,itp->ip", s, A)
        return (np.einsum("it,itp,itq->pq", s, A, A) - mean.T @ mean) / n

    if not basis.shape[1]:
        return np.zeros((d, d)), shares(np.zeros(0))[1], np.zeros((d * d, d * d))
    found = minimize(value_and_gradient, np.zeros(A.shape[-1]), jac=True, hess=hessian, method="trust-exact",
                     options={"gtol": 1e-10})
    c = found.x - np.linalg.solve(hessian(found.x), value_and_gradient(found.x)[1])
    return (basis @ c).reshape(d, d), shares(c)[1], basis @ basis.T
