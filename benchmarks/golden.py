"""Golden records: the results of every method on two small logs, to check that a code change changes no number.

    python -m benchmarks.golden record OUT [--only dtr,ranker] [--source SRC] [--log LOG [--items ITEMS]] [--users 150]
    python -m benchmarks.golden compare A B [--only dtr,ranker] [--allow-renamed]

`record` runs the command line of the code in SRC, by default this checkout. Each case is fitted for a fixed number of
steps, evaluated and asked for recommendations. OUT/<log>/<case>.json has its metrics, answers and hashes of all arrays:
those of the artefact ("tensors") and of the last checkpoint ("run": weights and optimisers of the last step). Refused
commands are in refusals.json. One log is planted, the other has the first users of LOG. Records are valid on one
machine: another processor rounds differently. `--only` takes cases, methods and "refusals".
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.golden_cases import CASES, REFUSED_CALLS, REFUSED_FITS, Case, Log, planted_log, real_log


@dataclass(frozen=True)
class Call:
    """The result of a command; `error` is the last line on stderr if it failed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out) if self.code == 0 else None

    @property
    def error(self) -> str | None:
        return None if self.code == 0 else ([line for line in self.err.splitlines() if line.strip()] or [""])[-1]


class Program:
    """The command line of the code in `source`; each call is a process, forked from one with all modules loaded."""

    def __init__(self, source: Path, folder: Path) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        fixed = {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200", "NO_COLOR": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        path = os.pathsep.join(map(str, (source, Path(__file__).resolve().parents[1])))
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.golden", "serve"],
            cwd=folder,
            env=os.environ | threads | fixed | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = self._read()
        if not Path(found).is_relative_to(source):
            raise SystemExit(
                f"--source {source}: the program that runs is {found}; give the folder that holds beamwood"
            )

    def close(self) -> None:
        """End the process that calls are forked from."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of the code under test ended; see above")
        return line.strip()

    def __call__(self, *arguments: str) -> Call:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        code = int(self._read())
        texts = [(self.folder / name).read_text() for name in ("fits/stdout", "fits/stderr")]
        return Call(code, *(text.replace(str(self.folder), "<log>") for text in texts))


def answer_commands() -> None:
    """Load all modules once, then fork for each command on a line of stdin and print its exit code."""
    import beamwood

    modules = [module.name for module in pkgutil.walk_packages(beamwood.__path__, "beamwood.")]
    for name in ("torch._dynamo", *modules):
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()
    print(Path(beamwood.__file__).resolve(), flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        for number, (name, mode) in enumerate(((os.devnull, "r"), ("fits/stdout", "w"), ("fits/stderr", "w"))):
            os.dup2(os.open(name, os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["beamwood", *json.loads(line)]
        code: Any = 1
        try:
            runpy.run_module("beamwood", run_name="__main__")
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            # No interpreter shutdown: it would touch, and so copy, all memory shared with the parent.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


class Recorder:
    """Fits the cases on one log, each once, and records the results."""

    def __init__(self, program: Program, log: Log) -> None:
        self.program, self.log = program, log
        self.fitted = cache(self._fitted)

    def _placed(self, text: str) -> str:
        """The text with "{name}" replaced by the folder of that case, which is fitted first, or by the user table."""
        for name in set(re.findall(r"{([a-z0-9_+-]+)}", text)) & {*CASES, "users"}:
            text = text.replace(f"{{{name}}}", "users.parquet" if name == "users" else f"fits/{name}")
            assert name == "users" or self.fitted(name)
        return text

    def fit(self, case: Case, out: str) -> Call:
        """Fit a case into a folder."""
        settings = [
            part
            for name, value in case.settings.items()
            for part in ("--set", f"{name}={self._placed(json.dumps(value))}")
        ]
        options = self._placed(case.options).split()
        place = [] if "--out" in options else ["--out", out]
        files = ("log.parquet", "--items", "items.parquet")
        return self.program("fit", *files, *place, "--method", case.method, *settings, *options, "--json")

    def _fitted(self, name: str) -> Call:
        return self.fit(CASES[name], f"fits/{name}")

    def record(self, name: str) -> dict[str, Any]:
        """The record of a case: fit, training metrics, arrays, evaluation and answers."""
        fitted, folder = self.fitted(name), f"fits/{name}"
        if fitted.code:
            return {"fit": noted(fitted)}
        run = self.log.folder / f"{folder}.run"
        steps = [json.loads(line) for file in sorted(run.rglob("metrics.jsonl")) for line in file.open()]
        evaluated = self.program("evaluate", folder, "--tail", "0.3", "--sampled", "20", "--json")
        answers = {}
        for ask, words in self.log.asks.items():
            asked = self.program("recommend", folder, *words, *CASES[name].asked.split(), "--json")
            answers[ask] = noted(asked) | {"rows": asked.document or []}
        return {
            "fit": noted(fitted) | {"training": numbers(fitted.document["training"], all_kinds=True)},
            "steps": numbers(steps),
            "tensors": tensors(self.log.folder / folder),
            "run": tensors(run),
            "evaluate": noted(evaluated),
            "metrics": numbers(evaluated.document or {}),
            "answers": answers,
        }

    def refusals(self) -> dict[str, Any]:
        """The exit code and error line of each refused command."""
        found = {name: noted(self.fit(case, f"fits/{name}")) for name, case in REFUSED_FITS.items()}
        for name, words in REFUSED_CALLS.items():
            found[name] = noted(self.program(*self._placed(words).split()))
        return found


def noted(call: Call) -> dict[str, Any]:
    """The exit code, and the error line of a failure."""
    return {"exit": call.code, "error": call.error}


def numbers(document: Any, name: str = "", *, all_kinds: bool = False) -> dict[str, Any]:
    """The numbers of a document by path, without times; with `all_kinds` also its strings."""
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    found: dict[str, Any] = {}
    for key, value in parts:
        if not str(key).endswith(("seconds", "per_second")):
            found |= numbers(value, f"{name}/{key}" if name else str(key), all_kinds=all_kinds)
    leaf = isinstance(document, int | float) or (all_kinds and not isinstance(document, dict | list))
    return {name: document} if leaf else found


def tensors(folder: Path) -> dict[str, tuple[str, list[int], str]]:
    """Type, shape and sha256 of each array in a folder."""
    found = {}
    for file in sorted(folder.rglob("*.safetensors")):
        for name, array in safetensors.numpy.load_file(file).items():
            digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            found[f"{file.relative_to(folder).with_suffix('')}:{name}"] = (str(array.dtype), list(array.shape), digest)
    return dict(sorted(found.items()))


def chosen(name: str, case: Case | None, only: list[str]) -> bool:
    """Whether `--only` selects a case."""
    return not only or name in only or (case is not None and case.method in only)


def record_log(recorder: Recorder, only: list[str]) -> int:
    """Write the record of each selected case; return how many could not be fitted."""
    failed, folder = 0, recorder.log.folder
    for name, case in (*CASES.items(), ("refusals", None)):
        if not chosen(name, case, only):
            continue
        began = time.perf_counter()
        document = recorder.refusals() if case is None else recorder.record(name)
        (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
        said = document.get("fit", {}).get("error") or ""
        failed += bool(said)
        print(f"{folder.name}/{name}: {time.perf_counter() - began:.1f} s {said}", flush=True)
    return failed


def record(arguments: argparse.Namespace) -> int:
    """Return 1 if a case could not be fitted."""
    out, failed = Path(arguments.out).resolve(), 0
    logs = [planted_log(out / "planted")]
    if arguments.log:
        folder = out / Path(arguments.log).resolve().parent.name
        logs.append(real_log(folder, arguments.log, arguments.items, arguments.users))
    for log in logs:
        fits = log.folder / "fits"
        shutil.rmtree(fits, ignore_errors=True)
        fits.mkdir()
        with contextlib.closing(Program(Path(arguments.source).resolve(), log.folder)) as program:
            failed += record_log(Recorder(program, log), arguments.only)
        shutil.rmtree(fits)
    return int(failed > 0)


def changed(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """Differences of named values: those in one record alone, those that differ, and the largest difference."""
    for side, names in (("first", a.keys() - b.keys()), ("second", b.keys() - a.keys())):
        if names:
            yield f"{what}: only in the {side}: {few(sorted(names))}"
    differing = {name: (a[name], b[name]) for name in a.keys() & b.keys() if a[name] != b[name]}
    if not differing:
        return
    far, name = max((distance(*pair), name) for name, pair in differing.items())
    values = " / ".join(map(str, differing[name]))
    yield f"{what}: {len(differing)} of {len(a)} differ, most {name} by {far:.3g}: {values}"


def few(names: list[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def distance(a: Any, b: Any) -> float:
    """The absolute difference of two numbers; infinite for other values."""
    return abs(a - b) if all(isinstance(value, int | float) for value in (a, b)) else float("inf")


def changed_rows(what: str, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> Iterator[str]:
    """The number of queries with other items, and the largest difference of scores."""
    pairs = list(zip(a, b, strict=False))
    items = sum(left["items"] != right["items"] for left, right in pairs) + abs(len(a) - len(b))
    far = [abs(x - y) for left, right in pairs for x, y in zip(left["scores"], right["scores"], strict=False)]
    if items or any(far):
        most = max(far, default=0.0)
        yield f"{what}: {items} of {len(a)} queries have other items; scores differ by {most:.3g} at most"


def changed_tensors(part: str, a: Mapping[str, Any], b: Mapping[str, Any], *, allow_renamed: bool) -> Iterator[str]:
    """Arrays with other content, arrays that only have another name, and arrays in one record alone."""
    differing = [name for name in a if name in b and a[name] != b[name]]
    gone, new = ([name for name in one if name not in other] for one, other in ((a, b), (b, a)))
    moved: dict[str, str] = {}
    for name in gone:
        twin = next((other for other in new if b[other] == a[name] and other not in moved.values()), None)
        moved |= {name: twin} if twin else {}
    same = len(a) - len(differing) - len(gone)
    parts = {"other content": differing, "missing": [name for name in gone if name not in moved]}
    parts["new"] = [name for name in new if name not in moved.values()]
    parts["renamed"] = [] if allow_renamed else [f"{old} -> {name}" for old, name in moved.items()]
    for what, names in parts.items():
        if names:
            yield f"{part}: {len(names)} {what} ({same} of {len(a)} equal): {few(names)}"


def differences(a: dict[str, Any], b: dict[str, Any], *, allow_renamed: bool = False) -> Iterator[str]:
    """All differences of two records of a case, one line each."""
    if "fit" not in a or "fit" not in b:
        for name in sorted(a.keys() | b.keys()):
            yield from changed(name, a.get(name, {}), b.get(name, {}))
        return
    for part in ("fit", "evaluate"):
        without = ({k: v for k, v in side.get(part, {}).items() if k != "training"} for side in (a, b))
        yield from changed(part, *without)
    yield from changed("training", a["fit"].get("training", {}), b["fit"].get("training", {}))
    for part in ("steps", "metrics"):
        yield from changed(part, a.get(part, {}), b.get(part, {}))
    for part in ("tensors", "run"):
        yield from changed_tensors(part, a.get(part, {}), b.get(part, {}), allow_renamed=allow_renamed)
    answers = [side.get("answers", {}) for side in (a, b)]
    for ask in sorted(answers[0].keys() | answers[1].keys()):
        rows = [side.get(ask, {}) for side in answers]
        yield from changed(f"answers, {ask}", *({k: v for k, v in side.items() if k != "rows"} for side in rows))
        yield from changed_rows(f"answers, {ask}", *(side.get("rows", []) for side in rows))


def compare(arguments: argparse.Namespace) -> int:
    """Return 1 if a case differs or there is none."""
    folders, differ = [Path(arguments.a), Path(arguments.b)], 0
    found = sorted({str(file.relative_to(folder)) for folder in folders for file in folder.glob("*/*.json")})
    names = [name for name in found if chosen(Path(name).stem, CASES.get(Path(name).stem), arguments.only)]
    for name in names:
        absent = [str(folder) for folder in folders if not (folder / name).exists()]
        lines = [f"not in {folder}" for folder in absent]
        if not absent:
            sides = [json.loads((folder / name).read_text()) for folder in folders]
            lines = list(differences(*sides, allow_renamed=arguments.allow_renamed))
        differ += bool(lines)
        print("\n  ".join([f"{name.removesuffix('.json')}: {'differs' if lines else 'equal'}", *lines]))
    print(f"{differ} of {len(names)} differ")
    return int(differ > 0 or not names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recorder, comparer, server = (commands.add_parser(name) for name in ("record", "compare", "serve"))
    recorder.add_argument("out")
    recorder.add_argument("--source", default=Path(__file__).resolve().parents[1] / "src")
    recorder.add_argument("--log")
    recorder.add_argument("--items")
    recorder.add_argument("--users", type=int, default=150)
    comparer.add_argument("a")
    comparer.add_argument("b")
    comparer.add_argument("--allow-renamed", action="store_true", help="an array may have another name")
    for command in (recorder, comparer):
        command.add_argument("--only", type=lambda text: text.split(","), default=[])
    for command, work in ((recorder, record), (comparer, compare), (server, lambda _: answer_commands())):
        command.set_defaults(work=work)
    arguments = parser.parse_args()
    return int(arguments.work(arguments) or 0)


if __name__ == "__main__":
    sys.exit(main())
