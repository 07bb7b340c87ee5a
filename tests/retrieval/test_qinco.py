"""QINCo: steps equal the paper's, without a network it is residual quantisation, each code reduces the error."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.retrieval.index import IndexInputs, QincoIndex, qinco, settings_of
from beamwood.retrieval.index.codes import residual_codes
from beamwood.retrieval.index.qinco import decode_step, shapes_of
from beamwood.testing import IndexContract

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'beamwood[train]')")


class TestQinco(IndexContract):
    index = QincoIndex
    num_items, width = 300, 8
    settings: ClassVar = {"num_codes": 4, "num_codewords": 16, "num_epochs": 2, "hidden": 8, "num_layers": 1}
    recall = 0.4
    exact_scores = False


def vectors(num=800, width=8):
    """Curved data: residuals depend on the position."""
    rng = np.random.default_rng(0)
    inner = rng.normal(size=(num, 3))
    return np.tanh(inner @ rng.normal(size=(3, width))).astype(np.float32) * 5


def made(x, **changes):
    given = {"num_codes": 3, "num_codewords": 16, "num_layers": 1, "hidden": 16, "num_epochs": 1} | changes
    return QincoIndex(x, settings_of(QincoIndex, given))


def test_a_step_equals_the_papers():
    """Compared with loops, and with torch."""
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=shape) for name, shape in shapes_of(2, 4, 3, 2, 5).items()}
    word, before = rng.normal(size=(2, 6, 3))
    for row, found in enumerate(decode_step(weights, 1, 2, word, before)):
        whole = np.concatenate([weights["1.by_word"], weights["1.by_sum"]], axis=1)
        z = word[row] + whole @ np.concatenate([word[row], before[row]]) + weights["1.bias"]
        for layer in range(2):
            z = z + weights[f"1.{layer}.outer"] @ np.maximum(weights[f"1.{layer}.inner"] @ z, 0)
        np.testing.assert_allclose(found, before[row] + z, rtol=1e-9)
    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    theirs = decode_step(tensors, 1, 2, torch.from_numpy(word), torch.from_numpy(before)).numpy()
    np.testing.assert_allclose(theirs, decode_step(weights, 1, 2, word, before), rtol=1e-9)


def test_without_a_network_it_is_residual_quantisation():
    x = vectors()
    rng = np.random.default_rng(0)
    scale = np.abs(x).max()
    rng.permutation(len(x))
    plain = residual_codes(x / scale, 3, 16, rng)
    index = made(x, num_layers=0, num_near=None, rate=1e-12)
    np.testing.assert_allclose(index.decoded, plain.decoded() * scale, rtol=1e-4, atol=1e-4)
    assert (index.codes.codes == plain.codes).mean() > 0.999


def planted(num=1200, width=8):
    """The residual of a centre is one of 8 codewords, rotated by an angle of the centre."""
    rng = np.random.default_rng(0)
    centres, words = 4 * rng.normal(size=(8, width)), rng.normal(size=(8, width))
    turns = np.stack([np.linalg.qr(rng.normal(size=(width, width)))[0] for _ in range(8)])
    first, second = rng.integers(8, size=(2, num))
    return (centres[first] + np.einsum("nij,nj->ni", turns[first], words[second])).astype(np.float32)


def test_planted_codes_that_depend_on_each_other_are_found():
    """Fixed codewords per step cannot fit all centres; those of the network do."""
    x = planted()
    given = {"num_codes": 2, "num_codewords": 8, "num_layers": 2, "hidden": 64, "rate": 5e-3}
    errors = [float(np.square(made(x, **given, num_epochs=num).decoded - x).mean()) for num in (1, 50)]
    assert errors[1] < 0.55 * errors[0]


def chosen_in_loops(index, x, num_layers):
    """Codes and decoded vectors in float64: at each place the codeword whose decoded vector is nearest."""
    decoder = index.codes.decoder
    w = {name: array.astype(np.float64) for name, array in decoder.weights.items()}
    codes, vectors = [], []
    for row in x / decoder.scale:
        so_far, own = np.zeros(len(row)), []
        for place in range(len(w["words"])):
            tried = []
            for word in w["words"][place]:
                z = word + w[f"{place}.by_word"] @ word + w[f"{place}.by_sum"] @ so_far + w[f"{place}.bias"]
                for layer in range(num_layers):
                    inner, outer = (w[f"{place}.{layer}.{part}"] for part in ("inner", "outer"))
                    z = z + outer @ np.maximum(inner @ z, 0)
                tried.append(so_far + z)
            own.append(int(np.argmin([np.square(one - row).sum() for one in tried])))
            so_far = tried[own[-1]]
        codes.append(own)
        vectors.append(so_far * decoder.scale)
    return np.array(codes), np.array(vectors)


def test_a_code_is_the_nearest_of_all_codewords():
    x = vectors(300)
    index = made(x, num_layers=2, num_near=None, num_epochs=3)
    codes, decoded = chosen_in_loops(index, x[:60], 2)
    assert (index.codes.codes[:60] == codes).mean() > 0.99
    same = (index.codes.codes[:60] == codes).all(axis=1)
    np.testing.assert_allclose(index.decoded[:60][same], decoded[same], atol=1e-4)


def test_codes_and_decoded_vectors_are_those_of_faiss():
    """Its first codewords are plain; ours of the first place are what the network makes of them."""
    faiss = pytest.importorskip("faiss", reason="faiss is not installed (pip install 'beamwood[ann]')")
    x, num_layers = vectors(300), 2
    index = made(x, num_layers=num_layers, num_near=None, num_epochs=3)
    decoder = index.codes.decoder
    w = {name: torch.from_numpy(np.asarray(array)) for name, array in decoder.weights.items()}
    num_codes, num_words, width = decoder.shape
    sizes = {"d": width, "K": num_words, "L": num_layers, "h": 16}

    def held(weight, bias=None):
        return SimpleNamespace(
            weight=torch.nn.Parameter(weight), bias=None if bias is None else torch.nn.Parameter(bias)
        )

    first = decode_step(w, 0, num_layers, w["words"][0], torch.zeros(num_words, width))
    steps = [
        SimpleNamespace(
            **sizes,
            codebook=held(w["words"][place]),
            MLPconcat=held(torch.cat([w[f"{place}.by_word"], w[f"{place}.by_sum"]], dim=1), w[f"{place}.bias"]),
            residual_blocks=[
                [held(w[f"{place}.{layer}.inner"]), None, held(w[f"{place}.{layer}.outer"])]
                for layer in range(num_layers)
            ],
        )
        for place in range(1, num_codes)
    ]
    twin = faiss.QINCo(width, num_words, num_layers, num_codes, 16)
    twin.from_torch(SimpleNamespace(**sizes, M=num_codes, codebook0=held(first), steps=steps))
    codes = twin.encode(faiss.Tensor2D(x / np.float32(decoder.scale))).numpy()
    assert (codes == index.codes.codes).mean() > 0.99
    decoded = twin.decode(faiss.Int32Tensor2D(index.codes.codes.astype(np.int32))).numpy() * decoder.scale
    np.testing.assert_allclose(decoded, index.decoded, atol=1e-4)


def test_each_code_reduces_the_error():
    x = vectors()
    errors = [float(np.square(made(x, num_codes=num, num_epochs=3).decoded - x).mean()) for num in (1, 2, 4)]
    assert errors == sorted(errors, reverse=True)


def test_enough_codes_reconstruct_exactly():
    x = vectors(200)
    np.testing.assert_allclose(made(x, num_codes=1, num_codewords=200).decoded, x, atol=1e-4)
    x = np.repeat(vectors(16), 5, axis=0)
    np.testing.assert_allclose(made(x, num_codes=2).decoded, x, atol=1e-4)


def test_the_rate_falls_after_passes_without_gain_and_the_best_weights_are_kept(monkeypatch):
    """To a tenth after each `_PATIENCE` such passes; a pass's error is that of the weights at its start."""
    monkeypatch.setattr(qinco, "_PATIENCE", 2)
    given = settings_of(QincoIndex, {"num_codes": 1, "num_codewords": 4, "num_layers": 0, "num_epochs": 7})
    training = qinco._Training(vectors(50), given, IndexInputs(0))
    start, totals, rates, kept = training.weights["words"].detach().clone(), iter([9, 8, 8.5, 8.5, 4, 5, 5]), [], []

    def passed(optimiser):
        rates.append(optimiser.param_groups[0]["lr"])
        with torch.no_grad():
            training.weights["words"] += 1
        return next(totals)

    monkeypatch.setattr(training, "_passed", passed)
    monkeypatch.setattr(training, "_keep_better", kept.append)
    training.run()
    np.testing.assert_allclose(rates, [1e-3, 1e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4])
    # Four passes lie before the one that measured 4.
    torch.testing.assert_close(kept[0]["words"], start + 4)


def test_it_keeps_its_time_limit():
    given = settings_of(QincoIndex, {"num_epochs": 10**6, "num_codes": 2, "num_codewords": 8})
    index = QincoIndex(vectors(), given, IndexInputs(0, None, 0.01))
    assert np.isfinite(index.decoded).all()


def test_invalid_arrays_are_refused():
    x = vectors(100)
    config, arrays = made(x).export()
    for change in (
        {"codes": arrays["codes"][1:]},
        {"codes": np.full_like(arrays["codes"], 99)},
        {"words": arrays["words"][:, :, 1:]},
        {"1.bias": np.full_like(arrays["1.bias"], np.nan)},
        {"2.0.inner": arrays["2.0.inner"][1:]},
    ):
        with pytest.raises(ArtefactError):
            QincoIndex.restore(x, config, arrays | change)
