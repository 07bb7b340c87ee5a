"""One user with known scores over a small catalogue, batches drawn by popularity, and gradients row by row."""

import numpy as np
import torch

from beamwood.sampling.in_batch import Pairs

NUM_ITEMS, TARGET = 24, 5


def world():
    """float32[N] scores, and int[N] how often each item was taken, with a ratio of 20 to 1."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(NUM_ITEMS, generator=generator) * 1.2
    counts = np.array([400 // (rank + 1) + 3 for rank in range(NUM_ITEMS)])
    return scores, counts


def random_batch(counts, size, generator):
    """int64[size], items as a stream brings them."""
    return torch.multinomial(torch.from_numpy(counts / counts.sum()), size, replacement=True, generator=generator)


def full_gradient(scores):
    """float64[N], what the full softmax would say to the target."""
    gradient = torch.softmax(scores.double(), 0)
    gradient[TARGET] -= 1
    return gradient


def pairs_of(leaf, items, candidates, masked):
    """One user's scores `leaf` in every row, by inner products with one-hot items."""
    one_hot = torch.eye(len(leaf), dtype=leaf.dtype)[candidates]
    return Pairs(leaf[None].expand(len(items), -1), one_hot, leaf[items], candidates, masked)


def row_gradients(sampler, scores, parts, num_rows, generator, positive=None):
    """float64[B, P, N] by each row's scores in each part, the candidates of which are given, and [B] by its positive's.

    Every row is the user, whose target is no candidate; its score is `positive` if given.
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
    """float64[B, P, N], how often each item was drawn, read back from the gradients.

    A softmax with `share` of the loss gives n draws the gradient share n exp(s) / Z, and the positive
    share exp(positive) / Z, which is what the draws leave of the share.
    """
    own_BP1 = torch.tensor(share_P, dtype=torch.float64)[:, None] - gradient_BPN.sum(dim=2, keepdim=True)
    return gradient_BPN / own_BP1 * torch.exp(positive - scores.double())


def expected_draws(scores, counts, candidates, num_draws):
    """float64[N], `num_draws` times softmax(s - log pop) over the candidates that are not the target."""
    times = torch.bincount(candidates, minlength=NUM_ITEMS)
    weights = times * torch.exp(scores.double()) / torch.from_numpy(counts / counts.sum())
    weights[TARGET] = 0
    return num_draws * weights / weights.sum()
