"""Every method that trains on a GPU makes the same steps there as on the CPU."""

import numpy as np
import pytest
import torch

from beamwood.training.device import CPU, on_device
from gpu_cases import CASES, fitted, small_split

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU"),
]
STEPS = 8
# bfloat16 sums round differently on a GPU.
ROUGH = 0.02


@pytest.fixture(scope="module")
def split():
    return small_split()


@pytest.fixture(autouse=True)
def _exact_products(monkeypatch):
    """Turn off TF32, which rounds factors in recurrent layers and convolutions."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def assert_alike(losses, expected, case):
    assert len(losses) == len(expected) == STEPS
    rtol = ROUGH if case[1].get("optimiser.bf16") else 1e-3
    np.testing.assert_allclose(losses, expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_steps_equal_those_of_the_cpu(split, case, tmp_path):
    expected = fitted(split, case, tmp_path / "cpu", max_steps=STEPS)[1]
    retriever, losses = fitted(split, case, tmp_path / "cuda", max_steps=STEPS, **{"loop.device": "cuda"})
    assert_alike(losses, expected, case)
    # The searcher runs on the CPU.
    assert all(isinstance(array, np.ndarray) for array in retriever.searcher.export()[1].values())


@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[12]])
def test_a_run_resumes_on_the_other_device(split, case, devices, tmp_path):
    for device, steps in zip(devices, (4, STEPS), strict=True):
        given = {"loop.device": device, "optimiser.schedule": "constant"}
        losses = fitted(split, case, tmp_path / "parts", max_steps=steps, resume=steps == STEPS, **given)[1]
    expected = fitted(split, case, tmp_path / "constant", max_steps=STEPS, **{"optimiser.schedule": "constant"})[1]
    assert_alike(losses, expected, case)


def test_a_model_returns_with_the_same_parameters():
    model = torch.nn.Linear(2, 2)
    parameters = list(model.parameters())
    weights = [parameter.detach().clone() for parameter in parameters]
    gpu = torch.device("cuda", 0)
    with on_device(model, gpu):
        assert all(mine is one and mine.device == gpu for mine, one in zip(model.parameters(), parameters, strict=True))
        with on_device(model, CPU):
            assert all(mine.device == CPU for mine in model.parameters())
    for mine, one, weight in zip(model.parameters(), parameters, weights, strict=True):
        assert mine is one
        torch.testing.assert_close(mine.detach(), weight, rtol=0, atol=0)
