"""Beam search with a DIN scorer: the native kernels against the paper's form and against optimised eager torch.

`python -m benchmarks.search [--items 10000 100000 1000000] [--users 40] [--json]`, one thread. The
candidates take turns on the same users in one run, and medians over the turns are compared. Weights are random, as are
histories of 69 items (the shape of DTR on MIND: width 24, hidden 36, MLP 264-128-64-24-1); beam 150, k = 150.

Shape legend: M nodes, L history length, D width, A hidden.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

import numpy as np
import torch

from beamwood import kernels
from beamwood.kernels import reference
from beamwood.kernels.din import DinWeights, Layer
from beamwood.kernels.search import DinSearch
from beamwood.tree import Tree, random_tree
from benchmarks.measure import gemm_gflops, in_process, one_thread, print_results, processor_seconds_of, timed

WINDOWS = (20, 20, 10, 10, 2, 2, 2, 1, 1, 1)
WIDTH, HIDDEN, MLP = 24, 36, (128, 64, 24)
K = 150


def make_case(num_items: int, num_users: int) -> tuple[Tree, DinWeights, np.ndarray]:
    """A tree, random weights for it, and the leaves of random histories of full length."""
    rng = np.random.default_rng(2026)
    tree = random_tree(num_items, rng)

    def layer(inputs: int, outputs: int, *, linear: bool = False) -> Layer:
        weight = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        slope = np.full(outputs, 1 if linear else 0.25, np.float32)
        return Layer(weight, rng.normal(0, 0.1, outputs).astype(np.float32), slope)

    sizes = [(len(WINDOWS) + 1) * WIDTH, *MLP, 1]
    weights = DinWeights(
        nodes=rng.standard_normal((tree.shape.num_nodes, WIDTH), np.float32),
        attention_in=layer(3 * WIDTH, HIDDEN),
        attention_out=layer(HIDDEN, 1),
        windows=np.array(WINDOWS, np.int64),
        layers=tuple(layer(sizes[i], sizes[i + 1], linear=i == len(MLP)) for i in range(len(MLP) + 1)),
    )
    histories = tree.leaves_of(rng.integers(0, num_items, (num_users, sum(WINDOWS))))
    return tree, weights, histories


class TorchSearch:
    """The same beam search, scored by torch: `plain` builds every pair, else the user is folded into the weights."""

    def __init__(self, tree: Tree, weights: DinWeights, *, plain: bool) -> None:
        self.tree, self.weights, self.plain = tree, weights, plain
        self.nodes = torch.from_numpy(weights.nodes)
        layers = [weights.attention_in, weights.attention_out, *weights.layers]
        tensors = [[torch.from_numpy(part) for part in (layer.weight, layer.bias, layer.slope)] for layer in layers]
        self.attention_in, self.attention_out, *self.layers = tensors

    @torch.inference_mode()
    def score(self, level: int, history_L: np.ndarray, nodes_M: np.ndarray) -> np.ndarray:
        offset = self.tree.shape.level_offset(level)
        a_LD = self.nodes[torch.from_numpy(offset + history_L)]
        w_MD = self.nodes[torch.from_numpy(offset + nodes_M)]
        z = self.pooled_plain(a_LD, w_MD) if self.plain else self.pooled_folded(a_LD, w_MD)
        x = torch.cat([z, w_MD], dim=1)
        for layer in self.layers:
            x = dense(layer, x)
        return x[:, 0].numpy()

    def pooled_plain(self, a_LD: torch.Tensor, w_MD: torch.Tensor) -> torch.Tensor:
        a, w = torch.broadcast_tensors(a_LD[None], w_MD[:, None])
        weight_ML1 = dense(self.attention_out, dense(self.attention_in, torch.cat([a, a * w, w], dim=2)))
        return torch.cat([part.sum(dim=1) for part in (weight_ML1 * a).split(WINDOWS, dim=1)], dim=1)

    def pooled_folded(self, a_LD: torch.Tensor, w_MD: torch.Tensor) -> torch.Tensor:
        weight, bias, slope = self.attention_in
        w_a, w_p, w_w = weight.chunk(3, dim=1)
        folded = (w_p[None] * a_LD[:, None] + w_w).reshape(-1, WIDTH)
        constant = (torch.addmm(bias, a_LD, w_a.T)).reshape(-1)
        hidden_MLA = torch.addmm(constant, w_MD, folded.T).view(len(w_MD), len(a_LD), HIDDEN)
        weight_ML = dense(self.attention_out, torch.nn.functional.leaky_relu_(hidden_MLA, float(slope[0])))[..., 0]
        parts = zip(weight_ML.split(WINDOWS, dim=1), a_LD.split(WINDOWS), strict=True)
        return torch.cat([weight @ a for weight, a in parts], dim=1)

    def beam(self, histories: np.ndarray) -> reference.SearchResult:
        """`reference.beam_search` with the scores of this class."""
        shape = self.tree.shape
        leaves, scores, scored = [], [], []
        for history in histories:
            nodes, count = np.zeros(1, np.int64), 0
            for level in range(1, shape.depth + 1):
                live = self.tree.live_counts[level]
                nodes = reference.open_children(shape, level, nodes, live, np.empty(0, np.int32))
                if level < shape.depth and len(nodes) <= K:
                    continue
                values = self.score(level, shape.ancestors(history, level), nodes)
                count += len(nodes)
                best = reference.best_first(values, nodes, K)
                if level == shape.depth:
                    leaves.append(nodes[best])
                    scores.append(values[best])
                nodes = np.sort(nodes[best])
            scored.append(count)
        return reference.SearchResult(np.stack(leaves).astype(np.int32), np.stack(scores), np.array(scored))


def dense(layer: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    weight, bias, slope = layer
    return torch.nn.functional.prelu(torch.nn.functional.linear(x, weight, bias).movedim(-1, 1), slope).movedim(1, -1)


def multiplications_a_node() -> int:
    """The weights of the folded form: attention, its output, windows and node through the first layer, the rest."""
    length, sizes = sum(WINDOWS), [*MLP, 1]
    rest = sum(a * b for a, b in itertools.pairwise(sizes))
    return length * HIDDEN * WIDTH + length * HIDDEN + (length + WIDTH) * MLP[0] + rest


def candidates(tree: Tree, weights: DinWeights) -> dict[str, Any]:
    arguments: dict[str, Any] = {"beam_width": K, "k": K, "live": tree.live_counts}
    found: dict[str, Any] = {
        "straightforward": TorchSearch(tree, weights, plain=True).beam,
        "eager": TorchSearch(tree, weights, plain=False).beam,
    }
    for precision in ["float32", *(["exact", "bf16"] if kernels.active_kernels()["amx"] else [])]:
        if kernels.active_kernels()["path"] == "native":
            search = DinSearch(weights, tree.shape, precision=precision)
            found[precision] = lambda histories, search=search: search.beam(histories, **arguments)
    return found


def compared_searches(num_items: int, num_users: int, turns: int) -> dict[str, Any]:
    """Median milliseconds per query of each candidate, and their ratios."""
    tree, weights, histories = make_case(num_items, 500)
    searches = candidates(tree, weights)
    few = histories[:num_users]
    times: dict[str, list[float]] = {name: [] for name in searches}
    for search in searches.values():
        search(few[:2])
    slow = ("straightforward", "eager")
    for turn in range(turns):
        for name, search in searches.items():
            # Each turn has its own share of the users; fast candidates repeat it until it is long enough to time.
            part = few[turn::turns]
            repeats = 1 if name in slow else 5
            times[name].append(processor_seconds_of(lambda s=search, p=part, r=repeats: [s(p) for _ in range(r)]))
            times[name][-1] *= 1e3 / (repeats * len(part))
    medians = {name: statistics.median(values) for name, values in times.items()}
    results: dict[str, Any] = {"items": num_items, "levels": tree.shape.depth}
    results["ms_a_query"] = medians
    truth = searches["float32"](few) if "float32" in searches else searches["eager"](few)
    results["scored_nodes"] = float(truth.scored.mean())
    results["times_straightforward"] = {n: medians["straightforward"] / ms for n, ms in medians.items()}
    results["times_eager"] = {n: medians["eager"] / ms for n, ms in medians.items()}
    rate = 2 * multiplications_a_node() * results["scored_nodes"] / 1e6
    peak = gemm_gflops()
    results["gemm_gflops"] = peak
    results["share_of_gemm_rate"] = {n: rate / ms / peak for n, ms in medians.items() if n not in slow}
    results["same_top_k_as_float32"] = {
        name: float(
            np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(search(few).leaves, truth.leaves, strict=True)])
        )
        for name, search in searches.items()
    }
    twin = reference.beam_search(weights, tree.shape, few[:5], beam_width=K, k=K, live=tree.live_counts)
    results["places_equal_to_twin"] = {n: float(np.mean(s(few[:5]).leaves == twin.leaves)) for n, s in searches.items()}
    results["batch_500_over_single"] = {
        name: batch_over_single(searches[name], histories) for name in searches if name not in slow
    }
    return results


def batch_over_single(search: Any, histories: np.ndarray) -> float:
    """Time per user in a batch of 500, relative to single queries."""
    batch, single = [], []
    for _ in range(3):
        batch.append(processor_seconds_of(lambda: search(histories)))
        single.append(processor_seconds_of(lambda: [search(histories[i : i + 1]) for i in range(len(histories))]))
    return statistics.median(batch) / statistics.median(single)


def peak_above_weights(num_items: int, name: str) -> float:
    """Peak memory in MiB above that of the tree and the weights."""
    tree, weights, histories = make_case(num_items, 20)
    return timed(lambda: candidates(tree, weights)[name](histories), repeats=1, warm=0)["peak_mib"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--users", type=int, default=40, help="number of users for the medians")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    one_thread()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"kernels": str(kernels.active_kernels())}
    sizes = [compared_searches(num_items, options.users, options.turns) for num_items in options.items]
    for size in sizes:
        results |= {f"{size['items']} {name}": value for name, value in size.items() if name != "items"}
    results["largest_over_smallest"] = {
        name: sizes[-1]["ms_a_query"][name] / sizes[0]["ms_a_query"][name] for name in sizes[0]["ms_a_query"]
    }
    results[f"{options.items[0]} peak_mib"] = {
        name: in_process(peak_above_weights, options.items[0], name) for name in sizes[0]["ms_a_query"]
    }
    print_results(results, as_json=options.json)


if __name__ == "__main__":
    main()
