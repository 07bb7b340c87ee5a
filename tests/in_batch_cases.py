"""One user with known scores over a small catalogue, batches drawn by popularity, and gradients of each row."""

import numpy as np
import torch

from beamwood.sampling.in_batch import Pairs

NUM_ITEMS, TARGET = 24, 5


def world():
    """Scores, float32[N], and interaction counts, int[N], with a ratio of up to 20 to 1."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(NUM_ITEMS, generator=generator) * 1.2
    counts = np.array([400 // (rank + 1) + 3 for rank in range(NUM_ITEMS)])
    return scores, counts


def random_batch(counts, size, generator):
    """Items drawn by popularity, int64[size]."""
    return torch.multinomial(torch.from_numpy(counts / counts.sum()), size, replacement=True, generator=generator)


def full_gradient(scores):
    """The gradient of the full softmax, float64[N]."""
    gradient = torch.softmax(scores.double(), 0)
    gradient[TARGET] -= 1
    return gradient


def pairs_of(leaf, items, candidates, masked):
    """The user's scores `leaf` in every row, as inner products with one-hot items."""
    one_hot = torch.eye(len(leaf), dtype=leaf.dtype)[candidates]
    return Pairs(leaf[None].expand(len(items), -1), one_hot, leaf[items], candidates, masked)


def row_gradients(sampler, scores, parts, num_rows, generator, positive=None):
    """Gradients by each row's scores in each part, float64[B, P, N], given the candidates, and by its positive's, [B].

    Every row is the same user, whose target is not a candidate; `positive`: the target's score if given.
    """
    candidates = torch.cat(parts)
    part = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(items) for items in parts]))
    leaf = scores.repeat(num_rows, len(parts)).requires_grad_()
    own = torch.full((num_rows,), scores[TARGET].item() if positive is None else positive, dtype=scores.dtype)
    own.requires_grad_()
    one_hot = torch.eye(leaf.shape[1], dtype=scores.dtype)[part * NUM_ITEMS + candidates]
    masked = (candidates == TARGET).expand(num_rows, -1)
    sampler.losses(Pairs(leaf, one_hot, own, candidates, masked), generator).sum().backward()
    return leaf.grad.double().view(num_rows, len(parts), NUM_ITEMS), own.grad.double()


def drawn_counts(gradient_BPN, share_P, scores, positive):
    """How often each item was drawn, float64[B, P, N], recovered from the gradients.

    A softmax with `share` of the loss gives n draws the gradient share n exp(s) / Z, and the positive
    share exp(positive) / Z, the rest of the share.
    """
    own_BP1 = torch.tensor(share_P, dtype=torch.float64)[:, None] - gradient_BPN.sum(dim=2, keepdim=True)
    return gradient_BPN / own_BP1 * torch.exp(positive - scores.double())


def expected_draws(scores, counts, candidates, num_draws):
    """Expected draws, float64[N]: `num_draws` times softmax(s - log pop) over the candidates except the target."""
    times = torch.bincount(candidates, minlength=NUM_ITEMS)
    weights = times * torch.exp(scores.double()) / torch.from_numpy(counts / counts.sum())
    weights[TARGET] = 0
    return num_draws * weights / weights.sum()
