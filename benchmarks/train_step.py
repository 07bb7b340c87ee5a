"""Time and memory of a training step with MIND's shape: the paper's form, node-major eager, and the native kernel.

python -m benchmarks.train_step [--json] [--users 100] [--straight-users 100] [--repeats 5] [--norm none]

Ratios are of processor seconds of one thread.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from beamwood.kernels import native
from beamwood.kernels.attention import attention_weights
from beamwood.losses.softmax import full_softmax, sampled_softmax
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.sampling.tree import tree_negatives
from beamwood.sampling.uniform import uniform_negatives
from beamwood.tree import Shape, Tree
from benchmarks.measure import gemm_gflops, in_process, one_thread, print_results, timed

NUM_ITEMS, NUM_NEGATIVES, WIDTH, HIDDEN = 7129, 70, 24, 36
WINDOWS = (20, 20, 10, 10, 2, 2, 2, 1, 1, 1)
LENGTH = sum(WINDOWS)
# Level, targets, and samples with their log q; None if the whole level is scored.
Drawn = list[tuple[int, Tensor, Tensor | None, Tensor | None]]


class PaperScorer(DinScorer):
    """The same scores by the paper's literal equations: every pair's [a; a * w; w] and every window's sum."""

    def first_layer(self, leaves_BL: Tensor, entry: LevelNodes) -> Tensor:
        offset, size = self.shape.level_offset(entry.level), self.shape.level_size(entry.level)
        history = torch.div(leaves_BL, self.shape.leaves_below(entry.level), rounding_mode="floor")
        nodes = torch.arange(size).expand(len(leaves_BL), -1) if entry.nodes is None else entry.nodes
        w_BMD = self.nodes(nodes + offset)
        a, w = torch.broadcast_tensors(self.nodes(history.clamp(min=0) + offset)[:, None], w_BMD[:, :, None])
        hidden = self.attention_in(torch.cat([a, a * w, w], -1))
        hidden = torch.where(hidden > 0, hidden, hidden * self.attention_in_act.weight)
        out = functional.prelu(self.attention_out(hidden), self.attention_out_act.weight)
        weighted = out * a * (history >= 0)[:, None, :, None]
        sums = [part.sum(dim=2) for part in torch.split(weighted, list(self.windows), dim=2)]
        first: Tensor = self.hidden[0](torch.cat([*sums, w_BMD], dim=-1))
        return first


def build(
    scorer: type[DinScorer], users: int, *, norm: str = "none", recompute: bool = False
) -> tuple[Tree, DinScorer, Tensor, Tensor, torch.Generator]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    # The paper's tree is complete and binary.
    tree = Tree.of_order(np.random.default_rng(0).permutation(NUM_ITEMS), Shape(2, 2, 13))
    model = scorer(
        tree.shape,
        windows=WINDOWS,
        norm=norm,
        dropout=0.1,
        unit_coordinate=False,
        recompute=recompute,
        generator=generator,
    )
    leaves = torch.from_numpy(tree.leaf_of_item.astype(np.int64))
    history = leaves[torch.randint(NUM_ITEMS, (users, LENGTH), generator=generator)]
    targets = leaves[torch.randint(NUM_ITEMS, (users, 1), generator=generator)]
    return tree, model, history, targets, generator


def draw_uniform(tree: Tree, targets: Tensor, generator: torch.Generator) -> Drawn:
    levels: Drawn = []
    for level in range(1, tree.shape.depth + 1):
        own, size = targets // tree.shape.leaves_below(level), tree.shape.level_size(level)
        if size <= NUM_NEGATIVES + 1:
            levels.append((level, own, None, None))
        else:
            levels.append((level, own, *uniform_negatives(len(targets), NUM_NEGATIVES, size, generator)))
    return levels


def step_loss(model: DinScorer, history: Tensor, levels: Drawn) -> Tensor:
    asked = [
        LevelNodes(level, None if nodes is None else torch.cat([own, nodes], 1)) for level, own, nodes, _ in levels
    ]
    losses = []
    for scores, (_, own, nodes, log_q) in zip(model(history, asked), levels, strict=True):
        if nodes is None or log_q is None:
            losses.append(full_softmax(scores, own).mean())
        else:
            dropped = nodes[:, None, :] == own[:, :, None]
            losses.append(sampled_softmax(scores[:, :1], scores[:, 1:], log_q, dropped).mean())
    return torch.stack(losses).mean()


def run_step(scorer: str, users: int, repeats: int, sampling: str, norm: str) -> dict[str, float]:
    """A whole step: sampling, forward, backward, dense Adam."""
    tree, model, history, targets, generator = build(
        PaperScorer if scorer == "paper" else DinScorer, users, norm=norm, recompute=scorer == "recompute"
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []

    def step() -> None:
        levels = draw_uniform(tree, targets, generator)
        if sampling == "tree":
            draws = tree_negatives(model, history, targets, tree.live_counts, NUM_NEGATIVES, generator)
            by_level = zip(levels, draws.nodes, draws.log_q, strict=True)
            levels = [
                (level, own, None, None) if drawn is None else (level, own, nodes, log_q)
                for (level, own, drawn, _), nodes, log_q in by_level
            ]
        optimizer.zero_grad()
        loss = step_loss(model, history, levels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    return {**timed(step, repeats=repeats), "first_loss": losses[0]}


def run_attention(users: int, repeats: int) -> dict[str, float]:
    """The attention kernel alone on one level, forward and backward, relative to the rate of a GEMM."""
    _, model, _, _, generator = build(DinScorer, 1)
    a = torch.randn(users, LENGTH, WIDTH, generator=generator).requires_grad_()
    w = torch.randn(users, NUM_NEGATIVES + 1, WIDTH, generator=generator).requires_grad_()
    present = torch.ones(users, LENGTH, dtype=torch.bool)
    gradient = torch.ones(users, NUM_NEGATIVES + 1, LENGTH)
    forward = timed(lambda: attention_weights(a, w, present, model.attention_layers), repeats=repeats)["best_s"]
    both = timed(lambda: attention_weights(a, w, present, model.attention_layers).backward(gradient), repeats=repeats)[
        "best_s"
    ]
    peak, flops = gemm_gflops(), 2.0 * users * LENGTH * (NUM_NEGATIVES + 1) * WIDTH * HIDDEN
    return {
        "forward_s": forward,
        "both_s": both,
        "forward_share_of_gemm": flops / forward / 1e9 / peak,
        # Three more products: the hidden layer again, and the gradients of the folded matrix and of the nodes.
        "both_share_of_gemm": 4 * flops / both / 1e9 / peak,
        "gemm_gflops": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument(
        "--straight-users", type=int, default=100, help="users for the paper's form; its time is scaled to --users"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--norm", choices=("none", "batch"), default="none", help="normalisation of the MLP in every variant"
    )
    options = parser.parse_args()
    one_thread()
    if native() is None:
        raise SystemExit("the native core is not built; run `make native`")
    users, repeats, norm = options.users, options.repeats, options.norm
    fast, slow = {"BEAMWOOD_KERNELS": "native"}, {"BEAMWOOD_KERNELS": "reference"}
    results: dict[str, Any] = {"users": users, "straight_users": options.straight_users, "norm": norm}
    results["native"] = mine = in_process(run_step, "ours", users, repeats, "uniform", norm, environment=fast)
    results["native_tree_sampling"] = in_process(run_step, "ours", users, repeats, "tree", norm, environment=fast)
    if norm == "none":
        results["native_recompute"] = in_process(
            run_step, "recompute", users, repeats, "uniform", norm, environment=fast
        )
    results["eager"] = in_process(run_step, "ours", users, 2, "uniform", norm, environment=slow)
    straight = in_process(run_step, "paper", options.straight_users, 2, "uniform", norm, environment=slow)
    scale = users / options.straight_users
    for name in ("median_s", "best_s", "processor_s", "peak_mib"):
        straight[name] *= scale
    results["straight"] = straight
    results["attention"] = in_process(run_attention, users, repeats, environment=fast)
    results["speedup_over_straight"] = straight["processor_s"] / mine["processor_s"]
    results["speedup_over_eager"] = results["eager"]["processor_s"] / mine["processor_s"]
    results["memory_of_straight"] = mine["peak_mib"] / straight["peak_mib"]
    if norm == "none":
        lean = results["native_recompute"]
        results["recompute_speedup_over_straight"] = straight["processor_s"] / lean["processor_s"]
        results["recompute_memory_of_straight"] = lean["peak_mib"] / straight["peak_mib"]
    results["tree_over_uniform"] = results["native_tree_sampling"]["processor_s"] / mine["processor_s"]
    print_results(results, as_json=options.json)


if __name__ == "__main__":
    main()
