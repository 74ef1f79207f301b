r"""The definition: sampled prompts of tokens, softmax attention over them, autograd on `Q`.  The slow referee.

A prompt holds ``x_1 .. x_N`` and the query ``x_q``, each ``v_k`` with probability ``p_k``; the labels are
``y_i = <w, x_i>`` with ``w ~ N(0, I_d)`` new for every prompt.  The query is masked out as a key:

.. math:: \hat y = \sum_i softmax_i(x_i^T Q x_q) y_i, \qquad L(Q) = \tfrac12 E (\hat y - \langle w, x_q\rangle)^2 .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attncore.incontext.draws import draw_features


@dataclass(frozen=True)
class Prompts:
    """Sampled prompts: feature indices `tokens` ``(B, N)`` and `query` ``(B,)``, tasks `w` ``(B, d)``."""

    tokens: torch.Tensor
    query: torch.Tensor
    w: torch.Tensor


def sample_prompts(generator: np.random.Generator, p: np.ndarray, N: int, d: int, size: int, device) -> Prompts:
    """Draw `size` prompts of `N` tokens with feature probabilities `p`, tasks in ``R^d``."""
    features = torch.from_numpy(draw_features(generator, p, (size, N + 1)).astype(np.int64)).to(device)
    return Prompts(features[:, :N], features[:, N], torch.from_numpy(generator.standard_normal((size, d))).to(device))


def predict(Q: torch.Tensor, V: torch.Tensor, prompts: Prompts) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions ``yhat (B,)`` and attention ``(B, N)`` of the one-layer model with matrix `Q` ``(d, d)``."""
    X, x_q = V[prompts.tokens], V[prompts.query]
    attention = torch.softmax(torch.einsum("bnd,bd->bn", X, x_q @ Q.T), -1)
    labels = torch.einsum("bnd,bd->bn", X, prompts.w)
    return (attention * labels).sum(-1), attention


def token_step(Q: torch.Tensor, V: torch.Tensor, prompts: Prompts):
    """Squared losses ``(B,)``, the descent direction ``-grad L`` ``(d, d)`` by autograd, attention ``(B, N)``."""
    Q = Q.detach().requires_grad_(True)
    prediction, attention = predict(Q, V, prompts)
    losses = 0.5 * (prediction - (prompts.w * V[prompts.query]).sum(-1)) ** 2
    (gradient,) = torch.autograd.grad(losses.mean(), Q)
    return losses.detach(), -gradient, attention.detach()
