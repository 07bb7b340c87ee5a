"""A comparison: methods are fitted and evaluated on the same split, and their differences are tested in pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from beamwood.arguments import naming_arguments
from beamwood.data.split import OF_OTHERS, Split
from beamwood.errors import InputError, NotInstalledError, nearest, why_failed
from beamwood.evaluation.protocol import checked_ks
from beamwood.evaluation.tail import TailRule
from beamwood.extras import is_installed, not_installed
from beamwood.fitting.fitted import notes_of_fit, training_seconds
from beamwood.methods import Method, check_fitted, check_split
from beamwood.methods.sums import blend_in_turn, parts
from beamwood.recipes.comparison import Comparison
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget
from beamwood.types import Searcher
from beamwood.words import counted

__all__ = [
    "check_alone",
    "check_installed",
    "compare",
    "compare_fitted",
    "named_presets",
    "named_sums",
    "simplest_of",
]


class _Table:
    """Prints a table row by row while methods are evaluated."""

    def __init__(self, measured: Comparison, names: Sequence[str], say: Callable[[str], None]) -> None:
        first, *self._titles = measured.columns
        self._measured, self._say, self._width = measured, say, max(map(len, (first, *names)))
        say("  ".join([first.ljust(self._width), *self._titles]))

    def print_row(self, name: str) -> None:
        """Print the row of a method."""
        _, *values = self._measured.row(name)
        shown = zip(values, (".4f", ".4f", ".2f", ".1f"), self._titles, strict=True)
        cells = [("–" if value is None else format(value, form)).rjust(len(title)) for value, form, title in shown]
        self._say("  ".join([name.ljust(self._width), *cells]))


@naming_arguments
def compare(
    split: Split,
    methods: Sequence[str | Method] | Mapping[str, Retriever],
    *,
    ks: Sequence[int] = (20,),
    preset: str | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    tail: TailRule | None = None,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Fit each method with its defaults, or its `preset`, on `split.train` and evaluate all on `split.test`.

    `methods`: at least two names, `Method`s or .py files; "dtr+cooccurrence" adds the second's score to the first's. Or
    a mapping of names to fitted retrievers. `ks`: the lengths of the lists, of which the shortest decides. `seed`: of
    each fit. `time_limit`: in seconds, for each method, and again for choosing the weights of each sum; a method that
    needs more, or fails, is left out, and weights are chosen on fewer users. `tail`: evaluate also on
    the labels that are rare by this rule. `say`: called with lines about the progress. Errors: `InputError` on fewer
    than two methods, also after failures; on a method that needs a fitted model or does not suit the split; on a
    retriever of another split; on `ks` outside 1..N; where fewer than two test users are left; `NotSavedError`.
    """
    check_split(split)
    if isinstance(methods, Mapping):
        if preset is not None or time_limit is not None or seed:
            raise InputError(
                "preset, seed and time_limit apply to fits, and these retrievers are fitted already; leave them out"
            )
        return compare_fitted(split, methods, ks=ks, tail=tail, say=say)
    sums = named_sums(methods)
    presets = named_presets(sums, preset)
    check_alone(sums, split.name, presets)
    check_installed(sums, presets)
    on_tail = check_test(split, tail, say)
    cuts = checked_ks(ks, len(split.dataset.items))
    measured = Comparison(split, cuts, simplest_of(sums), tail or TailRule(), with_tail=on_tail >= 2)
    without = [] if preset is None else [m.name for each in sums.values() for m in each if m.name not in presets]
    if without:
        say(f"without a preset {preset}, so with their defaults: {', '.join(dict.fromkeys(without))}")
    options = {"seed": seed, "progress": progress, "time_limit": time_limit}
    table = _Table(measured, list(sums), say)
    fits = _Fits(split, presets, options, measured, say)
    for name, searcher in fits.in_turn(sums):
        with fits.leaving_out(name):
            measured.add(name, searcher)
            table.print_row(name)
    if len(measured.results) < 2:
        raise InputError(f"fewer than two methods are left: {next(iter(measured.left_out.values()))}")
    measured.simplest = simplest_of({name: sums[name] for name in measured.results})
    return measured


@naming_arguments
def compare_fitted(
    split: Split,
    fitted: Mapping[str, Retriever],
    *,
    ks: Sequence[int] = (20,),
    tail: TailRule | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Evaluate retrievers that were fitted on `split.train`, by name, on `split.test`; otherwise as `compare`.

    Errors: `InputError` on fewer than two, on one of other data or another split, and where fewer than two test users
    are left.
    """
    if len(fitted) < 2:
        raise InputError(f"a comparison needs at least two retrievers, not {len(fitted)}")
    for name, retriever in fitted.items():
        check_fitted(retriever, split, name)
    on_tail = check_test(split, tail, say)
    simplest = min(fitted, key=lambda name: _complexity(*_made_of(fitted[name].metadata)))
    cuts = checked_ks(ks, len(split.dataset.items))
    measured = Comparison(split, cuts, simplest, tail or TailRule(), with_tail=on_tail >= 2)
    table = _Table(measured, list(fitted), say)
    for name, retriever in fitted.items():
        measured.add(name, retriever.searcher)
        seconds = training_seconds(retriever)
        if seconds is not None:
            measured.seconds[name] = seconds
        table.print_row(name)
    return measured


def simplest_of(sums: Mapping[str, Sequence[Method]]) -> str:
    """The simplest method, which the others have to beat: untrained, with few parts, popularity first."""
    return min(sums, key=lambda name: _complexity([m.name for m in sums[name]], any(m.needs.steps for m in sums[name])))


def _complexity(parts: Sequence[str], trains: bool) -> tuple[bool, int, bool]:
    """A sort key, simplest first; ties keep the given order."""
    return trains, len(parts), parts[0] != "popularity"


def _made_of(metadata: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The methods that a fitted model is made of, and whether any of them is trained by steps."""
    training, stages, config = (metadata.get(key) for key in ("training", "stages", "config"))
    trained = isinstance(training, Mapping) and "steps" in training
    if isinstance(stages, Mapping) and stages:
        made = [_made_of(stage) for stage in stages.values()]
        return [name for names, _ in made for name in names], trained or any(each for _, each in made)
    start = config.get("start") if isinstance(config, Mapping) else None
    folders = [start[key] for key in ("folder", "retriever") if start.get(key)] if isinstance(start, Mapping) else []
    # An index has item vectors of a trained model, and a ranker with a first stage is trained itself.
    return [str(metadata.get("method", "")), *folders], trained or bool(folders)


def check_test(split: Split, tail: TailRule | None, say: Callable[[str], None]) -> int:
    """The number of test users with a tail label. Errors: fewer than two test users in all."""
    if len(split.test) < 2:
        raise InputError(
            f"the split leaves {counted(len(split.test), 'test user')}, too few for a test; give more users or another "
            "--split"
        )
    on_tail = 0 if tail is None else _num_with_tail_label(split, tail)
    if tail is not None and on_tail < 2:
        having = counted(on_tail, "test user has", "test users have")
        say(f"--tail is left out: {having} a tail label, and a comparison needs 2; raise the share")
    return on_tail


def named_sums(methods: Sequence[str | Method]) -> dict[str, list[Method]]:
    """The methods to compare, each a list of the parts of a sum, by name. Errors: fewer than two, or equal names."""
    if isinstance(methods, str):
        raise InputError(f"methods={methods!r} is a string; give a list, such as ['popularity', 'ease']")
    listed = [parts(method) for method in methods]
    sums = {"+".join(method.name for method in each): each for each in listed}
    known: dict[str, Method] = {}
    twice = any(known.setdefault(method.name, method) != method for each in listed for method in each)
    if twice or len(sums) != len(listed) or len(sums) < 2:
        named = ",".join(method.name if isinstance(method, Method) else str(method) for method in methods)
        raise InputError(f"methods={named!r} must name at least two methods, each once")
    return sums


def named_presets(sums: Mapping[str, Sequence[Method]], preset: str | None) -> dict[str, str]:
    """By name of each method that has it, the preset. Errors: no method has it."""
    if preset is None:
        return {}
    methods = {method.name: method for each in sums.values() for method in each}
    having = {name: preset for name, method in methods.items() if preset in method.presets}
    if not having:
        known = {own for method in methods.values() for own in method.presets}
        raise InputError(f"--preset {preset}: no method here has it{nearest(preset, known) if known else ''}")
    return having


def check_alone(sums: Mapping[str, Sequence[Method]], split: str, presets: Mapping[str, str]) -> None:
    """Errors: a method that starts from a fitted one, or that does not suit the split."""
    for method in (method for each in sums.values() for method in each):
        name, needs = method.name, method.needs
        if not needs.alone:
            option = next(each.option for each in needs.fitted if each.required)
            raise InputError(
                f"{name} starts from a fitted model, and compare fits each method alone; fit it by `beamwood fit "
                f"LOG --method {name} {option} FOLDER` and evaluate both folders by `beamwood evaluate`"
            )
        if split in OF_OTHERS and needs.knows_users(method.configured(None, presets.get(name))):
            raise InputError(
                f"{name} recommends to users of the training data only, but --split {split} tests on others; use "
                f"--split leave-one-out, time or boundary, or leave {name} out"
            )


def check_installed(sums: Mapping[str, Sequence[Method]], presets: Mapping[str, str]) -> None:
    """Raise `NotInstalledError` naming the methods that need torch where it is missing, and those that do not."""
    methods = {method.name: method for each in sums.values() for method in each}
    trained = [n for n, method in methods.items() if method.needs.trains(method.configured(None, presets.get(n)))]
    if not trained or is_installed("train"):
        return
    counting = [name for name, each in sums.items() if not any(method.name in trained for method in each)]
    others = f"; or compare counting methods: --methods {','.join(counting)}" if len(counting) > 1 else ""
    raise NotInstalledError(f"{not_installed('--methods ' + ','.join(trained), 'torch')}{others}")


@dataclass(frozen=True, slots=True)
class _Fits:
    """The fits of a comparison, with their seconds and failures; `options`: of each fit, its seed and time limit."""

    split: Split
    presets: Mapping[str, str]
    options: Mapping[str, Any]
    measured: Comparison
    say: Callable[[str], None]

    def in_turn(self, sums: Mapping[str, Sequence[Method]]) -> Iterator[tuple[str, Searcher]]:
        """Yield the name and searcher of each sum; a method is fitted once, and kept while a later sum needs it.

        A method that fails or exceeds the limit is left out, and so are sums with it.
        """
        fitted: dict[str, Retriever] = {}
        names, seconds, left_out = list(sums), self.measured.seconds, self.measured.left_out
        for place, name in enumerate(names):
            own = [method.name for method in sums[name]]
            for method in sums[name]:
                if method.name not in fitted and method.name not in left_out:
                    fitted |= self._fit(method)
            missing = [part for part in own if part in left_out]
            if missing:
                left_out.setdefault(name, f"{missing[0]} is left out")
                continue
            began, budget = time.perf_counter(), Budget(self.options["time_limit"], name=name)
            with self.leaving_out(name):
                blend = blend_in_turn(
                    [fitted[part] for part in own], self.split, seed=self.options["seed"], budget=budget
                )
            if name in left_out:
                continue
            for line in budget.left_out:
                self.say(f"{name}: {line}")
            if len(own) > 1:
                seconds[name] = round(sum(seconds[part] for part in own) + time.perf_counter() - began, 1)
            later = {method.name for other in names[place + 1 :] for method in sums[other]}
            fitted = {part: retriever for part, retriever in fitted.items() if part in later}
            yield name, blend.searcher

    @contextmanager
    def leaving_out(self, name: str) -> Iterator[None]:
        """A context whose errors leave out the method, so that the others are still compared. Errors: a full disk."""
        try:
            yield
        except Exception as error:
            why = why_failed(error)
            if why is None:
                raise
            self.measured.left_out[name] = why
            self.say(f"{name} is left out: {why}")

    def _fit(self, method: Method) -> dict[str, Retriever]:
        """The fitted method by its name; nothing where it fails or exceeds the limit."""
        began = time.perf_counter()
        with self.leaving_out(method.name):
            fitted = method.fitted(self.split, preset=self.presets.get(method.name), **self.options)
        if method.name in self.measured.left_out:
            return {}
        self.measured.seconds[method.name] = round(time.perf_counter() - began, 1)
        for note in notes_of_fit(fitted):
            self.say(f"{method.name}: {note}")
        return {method.name: fitted}


def _num_with_tail_label(split: Split, rule: TailRule) -> int:
    """How many test users have a tail label."""
    labels = split.test.labels
    return len(np.unique(labels.rows[rule.tail(split.train).mask[labels.items]]))
