"""Each encoder's vector of a history against its paper's equations, in loops of float64."""

import numpy as np
import pytest
import torch

from beamwood.models.cities import ContextModel
from beamwood.models.encoders import caser, fmlp, gru4rec, sasrec, youtube_dnn
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.models.sequence import SequenceModel

WIDTH, LENGTH, NUM_ITEMS = 6, 7, 20
HISTORIES = [[3], [5, 1, 5], [0, 2, 4, 6, 8, 10, 12]]
SIZES = {
    "sasrec": {"num_blocks": 2, "num_heads": 3},
    "gru4rec": {"hidden": 5},
    "caser": {"num_vertical": 2, "num_horizontal": 3},
    "fmlp": {"num_blocks": 2},
    "youtube_dnn": {"layers": (9, 4)},
}
ENCODERS = {"sasrec": sasrec, "gru4rec": gru4rec, "caser": caser, "fmlp": fmlp, "youtube_dnn": youtube_dnn}


def linear(p, name, x):
    return p[f"{name}.weight"] @ x + p[f"{name}.bias"]


def normed(p, name, x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def attended(p, block, rows, num_heads, sees):
    """Attention over the rows that `sees(place)` names, then two maps, each behind a norm and with a residual."""
    size, inner = WIDTH // num_heads, [normed(p, f"{block}.attention_norm", row) for row in rows]
    query, key, value = ([linear(p, f"{block}.{part}", row) for row in inner] for part in ("query", "key", "value"))
    result = []
    for place, row in enumerate(rows):
        heads = []
        for own in (slice(n * size, n * size + size) for n in range(num_heads)):
            weights = np.exp([query[place][own] @ key[seen][own] / np.sqrt(size) for seen in sees(place)])
            shares = weights / weights.sum()
            heads.append(sum(share * value[seen][own] for share, seen in zip(shares, sees(place), strict=True)))
        row = row + linear(p, f"{block}.output", np.concatenate(heads))
        hidden = np.maximum(linear(p, f"{block}.inner", normed(p, f"{block}.feed_norm", row)), 0)
        result.append(row + linear(p, f"{block}.outer", hidden))
    return result


def by_sasrec(p, x):
    """Positions from the end, blocks of causal attention, and a last norm."""
    rows = [one + at for one, at in zip(x, p["positions"][-len(x) :], strict=True)]
    for block in ("blocks.0", "blocks.1"):
        rows = attended(p, block, rows, 3, lambda place: range(place + 1))
    return normed(p, "final_norm", rows[-1])


def by_gru4rec(p, x):
    """Cho et al.: `h = (1 - z) n + z h`, `n = tanh(W x + r (U h))`."""
    w, u, b, c = (p[f"gru.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h, size = np.zeros(5), 5
    for row in x:
        (r_x, z_x, n_x), (r_h, z_h, n_h) = ((m @ v + bias).reshape(3, size) for m, v, bias in ((w, row, b), (u, h, c)))
        r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
        h = (1 - z) * np.tanh(n_x + r * n_h) + z * h
    return linear(p, "output", h)


def by_caser(p, x):
    """Vertical filters weigh the places of each column; horizontal ones slide over the places, relu, then maximum."""
    image = np.zeros((LENGTH, WIDTH))
    image[LENGTH - len(x) :] = x
    parts = [[linear(p, "vertical", image[:, column]) for column in range(WIDTH)]]
    for height in range(1, LENGTH + 1):
        found = [
            np.maximum(linear(p, f"horizontal.{height - 1}", image[at : at + height].ravel()), 0)
            for at in range(LENGTH - height + 1)
        ]
        parts.append(np.max(found, axis=0))
    return linear(p, "output", np.concatenate([np.ravel(part) for part in parts]))


def by_fmlp(p, x):
    """Blocks of a filter of the places' frequencies (a plain Fourier sum) and two maps, a norm behind each residual."""
    real = [None] * (LENGTH - len(x)) + list(x)
    rows = np.array(
        [
            np.zeros(WIDTH) if row is None else normed(p, "norm", row + at)
            for row, at in zip(real, p["positions"], strict=True)
        ]
    )
    places = np.arange(LENGTH)
    for block in (f"blocks.{n}" for n in range(2)):
        half = p[f"{block}.filter"][..., 0] + 1j * p[f"{block}.filter"][..., 1]
        mixed = np.zeros((LENGTH, WIDTH), complex)
        for frequency in range(LENGTH):
            # Of a real signal the upper frequencies are conjugates of the lower ones.
            upper = frequency > LENGTH // 2
            factor = np.conj(half[LENGTH - frequency]) if upper else half[frequency].copy()
            if frequency == 0:
                factor = factor.real
            wave = np.exp(-2j * np.pi * frequency * places / LENGTH)
            mixed += np.conj(wave)[:, None] * (factor * (wave @ rows))[None] / LENGTH
        rows = np.array([normed(p, f"{block}.filter_norm", row) for row in rows + mixed.real])
        hidden = np.array([linear(p, f"{block}.inner", row) for row in rows])
        hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
        rows = np.array(
            [
                normed(p, f"{block}.feed_norm", row + linear(p, f"{block}.outer", each))
                for row, each in zip(rows, hidden, strict=True)
            ]
        )
    return rows[-1]


def by_youtube_dnn(p, x):
    """Layers over the mean of the watched items' own vectors."""
    hidden = x.mean(axis=0) / np.sqrt(WIDTH)
    for layer in ("layers.0", "layers.1"):
        hidden = np.maximum(linear(p, layer, hidden), 0)
    return linear(p, "output", hidden)


FORMULAS = {
    "sasrec": by_sasrec,
    "gru4rec": by_gru4rec,
    "caser": by_caser,
    "fmlp": by_fmlp,
    "youtube_dnn": by_youtube_dnn,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_history_has_the_vector_of_the_papers_equations(name):
    """In numpy, and in torch with padding before it; items enter with sqrt(D) times their vectors."""
    encoder = ENCODERS[name].ENCODER
    sizes = encoder.sizes(**SIZES[name])
    generator = torch.Generator().manual_seed(0)
    model = SequenceModel(encoder, NUM_ITEMS, width=WIDTH, length=LENGTH, sizes=sizes, generator=generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    plain = model.plain()
    p = {key: array.astype(np.float64) for key, array in plain.arrays.items()}
    padded = np.array([[-1] * (LENGTH - len(row)) + row for row in HISTORIES])
    expected = [FORMULAS[name](p, p["items.weight"][row] * np.sqrt(WIDTH)) for row in HISTORIES]
    assert isinstance(plain, PlainEncoder)
    np.testing.assert_allclose(plain.encode(padded), expected, atol=2e-5)
    with torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(padded))[:, -1].numpy(), expected, atol=2e-5)


def test_a_rare_item_has_the_vector_of_citiess_equations():
    """Two layers within each context, whose item is unknown, and two over an item's contexts; each time the mean."""
    rng, reach = np.random.default_rng(0), 3
    generator = torch.Generator().manual_seed(1)
    vectors = rng.normal(size=(NUM_ITEMS, WIDTH))
    model = ContextModel(vectors, reach=reach, num_heads=2, dropout=0.5, generator=generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    p = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    # Item 0 has two contexts, one of them at the start of a history, item 1 one without any neighbour.
    contexts = np.array([[-1, -1, 4, 7, 9, 2, 5], [-1, -1, -1, 7, 8, 1, -1], [-1, -1, -1, 3, -1, -1, -1]])
    means = []
    for row in contexts:
        there = [place for place in range(2 * reach + 1) if row[place] >= 0 or place == reach]
        rows = [
            (p["unknown"] if place == reach else vectors[row[place]]) * np.sqrt(WIDTH) + p["positions"][place]
            for place in there
        ]
        for block in ("inside.0", "inside.1"):
            rows = attended(p, block, rows, 2, lambda place, rows=rows: range(len(rows)))
        means.append(np.mean(rows, axis=0))
    expected = []
    for own in ([0, 1], [2]):
        rows = [means[place] for place in own]
        for block in ("across.0", "across.1"):
            rows = attended(p, block, rows, 2, lambda place, rows=rows: range(len(rows)))
        expected.append(linear(p, "output", np.mean(rows, axis=0)))
    with torch.no_grad():
        found = model(torch.tensor([0, 0, 1]), torch.from_numpy(contexts), 2).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)
