"""The device of a training: to_device tensors, refusals, and the return of the model."""

import pickle
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO

import numpy as np
import pytest
import torch
from torch import Tensor

from beamwood.cli.main import main
from beamwood.errors import InputError
from beamwood.methods import load_method
from beamwood.models import lightgcn
from beamwood.models.din import DinScorer
from beamwood.models.tree_model import TreeModel
from beamwood.training.device import CPU, device_of, on_device, to_device
from beamwood.training.loop import run_loop
from beamwood.training.loop_config import LoopConfig
from beamwood.training.trainable import Stepper
from beamwood.tree import random_tree
from beamwood.types import ItemLists
from gpu_cases import CASES, fitted, small_split
from linear_task import LinearTask

META = torch.device("meta")
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")


@contextmanager
def changed(default, value, before):
    default(value)
    try:
        yield
    finally:
        default(before)


def tensors_of(value):
    """All tensors anywhere in a value, found by pickle."""
    found = []

    class Finder(pickle.Pickler):
        def persistent_id(self, part):
            if isinstance(part, Tensor):
                found.append(part)
                return len(found)
            return None

    Finder(BytesIO()).dump(value)
    return found


@pytest.fixture(scope="module")
def split():
    return small_split()


@dataclass(frozen=True, slots=True)
class Held:
    one: Tensor
    more: object


Pair = namedtuple("Pair", "first second")


def test_a_batch_moves_with_all_its_tensors():
    lists = ItemLists(np.array([0, 2]), np.array([3, 1], np.int32))
    inner = Held(torch.ones(2), {"a": [torch.zeros(1), 3], "b": None})
    batch = Held(torch.ones(3), (Pair(inner, torch.arange(2)), lists, "word", np.ones(2)))
    there = to_device(batch, META)
    assert len(tensors_of(there)) == 4
    assert all(tensor.device == META for tensor in tensors_of(there))
    pair, kept, word, array = there.more
    assert isinstance(pair, Pair)
    assert (pair.first.more["a"][1], pair.first.more["b"], word) == (3, None, "word")
    assert kept is lists
    assert array is batch.more[3]
    assert all(tensor.device == CPU for tensor in tensors_of(batch))


@pytest.mark.parametrize("case", CASES)
def test_no_tensor_of_a_methods_batch_stays_on_the_old_device(split, case, tmp_path, monkeypatch):
    batches, drawn = [], Stepper.drawn

    def kept(stepper, rows, progress=None):
        batches.append(drawn(stepper, rows, progress))
        return batches[-1]

    monkeypatch.setattr(Stepper, "drawn", kept)
    fitted(split, case, tmp_path, max_steps=1)
    found = tensors_of(batches[0])
    there = tensors_of(to_device(batches[0], META))
    assert len(there) == len(found) > 0
    assert all(tensor.device == META for tensor in there)


def test_a_replaced_tree_is_detected_after_a_move():
    """Another tensor may have the same version number."""
    tree, other = (random_tree(90, np.random.default_rng(seed)) for seed in range(2))
    model = TreeModel(DinScorer(tree.shape, windows=(2,)), tree)
    model.item_of_leaf = torch.from_numpy(other.item_of_leaf.copy())
    np.testing.assert_array_equal(model.tree.item_of_leaf, other.item_of_leaf)


@NO_GPU
def test_a_missing_gpu_is_an_error_of_one_line_before_any_work():
    class Never(LinearTask):
        def prepare(self, rng, budget):
            raise AssertionError("prepared before the check")

    with pytest.raises(
        InputError, match=r"loop.device=cuda, but torch .* sees no GPU; set loop.device=cpu, or"
    ) as told:
        run_loop(Never(), LoopConfig(batch_size=8, max_steps=3, device="cuda"), progress=False)
    assert "\n" not in str(told.value)


@NO_GPU
def test_a_missing_gpu_is_an_error_of_a_fit_too(split):
    with pytest.raises(InputError, match=r"sees no GPU; set loop\.device=cpu"):
        load_method("sasrec").fitted(split, {"loop.device": "cuda"}, progress=False)
    with pytest.raises(InputError, match=r"loop\.device"):
        load_method("sasrec").fitted(split, {"loop.device": "gpu"}, progress=False)


def test_a_cpu_method_refuses_a_gpu():
    with pytest.raises(InputError, match=r"loop\.device='cuda': give 'cpu'"):
        load_method("lpo4rec").configured({"loop.device": "cuda"})
    assert load_method("lpo4rec").described()["loop.device"]["choices"] == []
    assert device_of("cpu") == CPU


@NO_GPU
def test_a_missing_gpu_is_an_error_of_a_command_before_its_log_is_read(tmp_path, capsys):
    for method, said in (("sasrec", "sees no GPU; set loop.device=cpu"), ("lpo4rec", "give 'cpu'")):
        assert main(["fit", str(tmp_path / "none.csv"), "--method", method, "--set", "loop.device=cuda"]) == 2
        assert said in capsys.readouterr().err


def test_averaging_the_graph_by_rows_equals_averaging_it_whole():
    """The computation of the GPU, run on the CPU."""
    rng = np.random.default_rng(0)
    taken = ItemLists(np.arange(0, 151, 5), np.concatenate([rng.choice(20, 5, replace=False) for _ in range(30)]))
    graph = lightgcn.Graph(taken, 20, 3)
    table, rows = torch.randn(50, 4, requires_grad=True), torch.tensor([1, 4, 33])
    found = []
    for form in (lightgcn.AveragedRows, lightgcn.AveragedGraph):
        vectors = form.apply(table, rows, graph)
        (gradient,) = torch.autograd.grad((vectors * torch.arange(12).view(3, 4)).sum(), table)
        found.append((vectors.detach(), gradient))
    torch.testing.assert_close(found[1], found[0])


def test_too_little_gpu_memory_is_an_error_with_the_fix():
    class Model(torch.nn.Linear):
        def to(self, device):
            moves.append(device)
            return self

    moves = []
    with (
        pytest.raises(InputError, match=r"too little memory .* lower loop\.batch_size, or set loop\.device=cpu"),
        on_device(Model(2, 2), META),
    ):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")
    assert moves == [META, CPU]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (torch.no_grad, r"torch computes no gradients here.*after torch\.set_grad_enabled\(True\)"),
        (torch.inference_mode, "fit outside of torch.no_grad and inference_mode"),
        (partial(changed, torch.set_default_dtype, torch.float64, torch.float32), "type is torch.float64, and weights"),
        (partial(changed, torch.set_default_device, META, None), "default device is meta, and loop.device sets that"),
    ],
)
def test_changed_defaults_of_torch_are_refused(change, message):
    split = small_split()
    with change(), pytest.raises(InputError, match=message):
        load_method("sasrec").fitted(split, progress=False)
    with change():
        load_method("popularity").fitted(split)
