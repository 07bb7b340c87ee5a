"""An interrupted save leaves the old or the new artefact complete."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from beamwood.artefact import read, read_artefact, replace, write, write_artefact
from beamwood.errors import ArtefactError
from bounded import line_of


def save(path, mark, *, overwrite=True, size=1000):
    write_artefact(
        path,
        manifest={"kind": "test", "mark": mark},
        arrays={"one": {"x": np.full(size, mark)}, "two": {"x": np.full(size, mark)}},
        texts={"notes.txt": str(mark)},
        overwrite=overwrite,
    )


def mark_of(path):
    artefact = read_artefact(path)
    marks = {artefact.manifest["mark"], int(artefact.text("notes.txt"))}
    marks |= set(artefact.arrays("one")["x"].tolist()) | set(artefact.arrays("two")["x"].tolist())
    (mark,) = marks
    return mark


# Each fork of this child is killed by SIGKILL before its n-th disk operation; the parent prints its status.
CHILD = textwrap.dedent("""
    import os, shutil, signal, sys
    import numpy as np
    import safetensors.numpy
    from beamwood.artefact import replace, write_artefact

    target, lacks_exchange = sys.argv[1], sys.argv[2] == "True"
    sys.path[:0] = [os.path.dirname(sys.argv[3]), os.path.dirname(os.path.dirname(sys.argv[3]))]
    from test_replace import save

    def run(fatal):
        count = 0
        def dying(function):
            def call(*args, **kwargs):
                nonlocal count
                count += 1
                if count == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)
            return call
        os.fsync, os.rename, os.unlink = dying(os.fsync), dying(os.rename), dying(os.unlink)
        os.mkdir, os.open, shutil.rmtree = dying(os.mkdir), dying(os.open), dying(shutil.rmtree)
        safetensors.numpy.save_file = dying(safetensors.numpy.save_file)
        replace._exchange = dying((lambda *_: False) if lacks_exchange else replace._exchange)
        save(target, 2)

    fatal = 1
    while True:
        process = os.fork()
        if process == 0:
            try:
                run(fatal)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print(status, flush=True)
        input()
        if status != -signal.SIGKILL:
            break
        fatal += 1
""")


@pytest.mark.parametrize("lacks_exchange", [False, True])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_artefact(tmp_path, lacks_exchange):
    target = tmp_path / "model"
    save(target, 1)
    arguments = [sys.executable, "-c", CHILD, str(target), str(lacks_exchange), __file__]
    seen = []
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        while True:
            status = int(line_of(child))
            seen.append(mark_of(target))
            # After the kill, a reader and the next save both work.
            save(target, 1)
            assert mark_of(target) == 1
            assert os.listdir(tmp_path) == ["model"]
            child.stdin.write("\n")
            child.stdin.flush()
            if status != -9:
                break
    assert status == 0
    assert len(seen) > 20
    assert seen == sorted(seen), "old before the exchange, new after it"
    assert set(seen) == {1, 2}


def test_a_kill_between_the_two_renames_is_repaired_by_reading(tmp_path):
    target = tmp_path / "model"
    save(target, 1)
    os.rename(target, tmp_path / ".model.0123456789ab.aside")
    (tmp_path / ".model.0123456789ab.saving").mkdir()
    assert mark_of(target) == 1
    with pytest.raises(ArtefactError, match="already holds an artefact"):
        save(target, 2, overwrite=False)


def test_what_stepped_aside_goes_only_once_its_place_is_taken(tmp_path):
    target, aside = tmp_path / "model", tmp_path / ".model.0123456789ab.aside"
    save(aside, 1)
    replace.clean(target)
    assert mark_of(aside) == 1
    save(target, 2)
    assert not aside.exists()
    save(aside, 1)
    replace.clean(target)
    assert not aside.exists()


def test_what_takes_a_place_is_on_the_disk_before_it_and_its_name_after_it(tmp_path, monkeypatch):
    done, plain = [], {name: getattr(os, name) for name in ("rename", "replace")}
    monkeypatch.setattr(replace, "sync", lambda path: done.append("name" if path == tmp_path else "content"))
    for name, call in plain.items():
        monkeypatch.setattr(os, name, lambda *paths, name=name, call=call: (done.append(name), call(*paths)))
    with replace.whole_file(tmp_path / "file") as fresh:
        fresh.write_text("whole")
    assert done == ["content", "replace", "name"]
    (tmp_path / "fresh").mkdir()
    replace.put_in_place(tmp_path / "fresh", tmp_path / "folder", overwrite=False)
    assert done[3:] == ["rename", "name"]


def test_a_reader_that_repairs_too_early_only_delays_the_save(tmp_path, monkeypatch):
    target = tmp_path / "model"
    save(target, 1)
    rename, healed = os.rename, []

    def meddled(source, destination):
        rename(source, destination)
        if str(destination).endswith(".aside") and not healed:
            healed.append(mark_of(target))

    monkeypatch.setattr(replace, "_exchange", lambda *_: False)
    monkeypatch.setattr(os, "rename", meddled)
    save(target, 2)
    assert healed == [1]
    assert mark_of(target) == 2
    assert os.listdir(tmp_path) == ["model"]


def test_the_folder_of_a_live_writer_is_not_changed(tmp_path):
    target = tmp_path / "model"
    live, dead = tmp_path / ".model.0123456789ab.saving", tmp_path / ".model.ba9876543210.saving"
    others = [tmp_path / ".modelled.0123456789ab.saving", tmp_path / ".model.backup"]
    for folder in (live, dead, *others):
        folder.mkdir()
        (folder / "part").write_text("x")
    lock = os.open(live, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    save(target, 1)
    assert live.exists()
    assert not dead.exists()
    assert all(folder.exists() for folder in others)
    os.close(lock)
    save(target, 1)
    assert not live.exists()


@pytest.mark.parametrize(
    ("where", "call"),
    [("fsync", 1), ("fsync", 5), ("save_file", 1), ("save_file", 2), *[("rename", n) for n in (1, 2, 3)]],
)
def test_a_full_disk_keeps_the_old_artefact(tmp_path, monkeypatch, where, call):
    target = tmp_path / "model"
    save(target, 1)
    count = 0

    def failing(function):
        def wrapped(*args, **kwargs):
            nonlocal count
            count += 1
            if count == call:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **kwargs)

        return wrapped

    if where == "save_file":
        import safetensors.numpy

        monkeypatch.setattr(safetensors.numpy, "save_file", failing(safetensors.numpy.save_file))
    else:
        monkeypatch.setattr(os, where, failing(getattr(os, where)))
    if where == "rename" and call > 1:
        monkeypatch.setattr(replace, "_exchange", lambda *_: False)
    with pytest.raises(ArtefactError, match=r"No space left.*untouched; free some space and save again"):
        save(target, 2)
    monkeypatch.undo()
    assert mark_of(target) == 1
    assert os.listdir(tmp_path) == ["model"]


def test_a_refused_write_keeps_the_old_artefact(tmp_path):
    target = tmp_path / "model"
    save(target, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(ArtefactError, match=r"one\.safetensors could not be saved"):
            save(target, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert mark_of(target) == 1
    assert os.listdir(tmp_path) == ["model"]


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    target = tmp_path / "model"
    save(target, 1)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(target, 2)
    monkeypatch.undo()
    assert mark_of(target) == 1
    assert os.listdir(tmp_path) == ["model"]


def test_an_artefact_created_during_a_save_is_not_replaced(tmp_path, monkeypatch):
    target = tmp_path / "model"
    fsync, done = os.fsync, []

    def slow(descriptor):
        fsync(descriptor)
        if not done:
            done.append(1)
            save(target, 1)

    monkeypatch.setattr(os, "fsync", slow)
    with pytest.raises(ArtefactError, match="already holds an artefact"):
        save(target, 2, overwrite=False)
    assert mark_of(target) == 1


WRITER = textwrap.dedent("""
    import os, sys
    from beamwood.artefact import replace
    sys.path[:0] = [os.path.dirname(sys.argv[3]), os.path.dirname(os.path.dirname(sys.argv[3]))]
    from test_replace import save

    if sys.argv[2] == "True":
        replace._exchange = lambda *_: False
    for mark in range(2, 10**9):
        save(sys.argv[1], mark)
        print(mark, flush=True)
""")


@pytest.mark.parametrize("lacks_exchange", [False, True])
def test_readers_see_the_old_or_the_new_folder_during_replacement(tmp_path, lacks_exchange):
    target = tmp_path / "model"
    save(target, 1)
    arguments = [sys.executable, "-c", WRITER, str(target), str(lacks_exchange), __file__]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "2\n"
            seen, end = [], time.monotonic() + 60
            while len(seen) < 60 or (len(set(seen)) == 1 and time.monotonic() < end):
                seen.append(mark_of(target))
        finally:
            writer.kill()
    assert seen == sorted(seen)
    assert len(set(seen)) > 1


def test_a_folder_that_saves_hide_for_a_moment_is_found(tmp_path, monkeypatch):
    target, hidden, looks = tmp_path / "model", tmp_path / "hidden", []
    save(target, 1)
    target.rename(hidden)

    def found(path):
        looks.append(path)
        if len(looks) == 2:
            hidden.rename(target)
        return path

    monkeypatch.setattr(read, "recover", found)
    assert mark_of(target) == 1


def test_a_concurrent_save_that_finished_first_is_not_replaced(tmp_path, monkeypatch):
    place = write.put_in_place

    def late(*given, **options):
        monkeypatch.setattr(write, "put_in_place", place)
        save(tmp_path / "model", 1, overwrite=False)
        place(*given, **options)

    monkeypatch.setattr(write, "put_in_place", late)
    with pytest.raises(ArtefactError, match="already holds an artefact; pass --overwrite"):
        save(tmp_path / "model", 2, overwrite=False)
    assert mark_of(tmp_path / "model") == 1
    assert os.listdir(tmp_path) == ["model"]


def test_a_temporary_folder_that_vanishes_is_unlocked(tmp_path, monkeypatch):
    locks, hold_path = [], replace.hold_path

    def vanishing(path, **options):
        locks.append(hold_path(path, **options))
        if len(locks) == 1:
            path.rmdir()
        return locks[-1]

    monkeypatch.setattr(replace, "hold_path", vanishing)
    with replace.temporary_folder(tmp_path / "model") as folder:
        assert folder.is_dir()
    assert len(locks) == 2
    for lock in locks:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(lock.descriptor)
