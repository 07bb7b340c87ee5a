"""Saved folders with changed, removed or moved bytes, with valid checksums or not: they answer or give one error."""

import json

from beamwood.errors import InputError
from damaged_folders import Folder, ask, changed, value_damages
from fuzz.values import drawn

__all__ = ["KINDS", "Mutated", "mutated"]

KINDS = ("tree", "popularity", "neighbours", "two_stage", "tower-mf", "gru4rec")


def mutated(chance, content):
    """Bytes with one to eight changes, or with a part removed, duplicated, overwritten or truncated."""
    made = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        place, length = chance.randrange(len(made) + 1), chance.choice((1, 1, 2, 4, 8, 64))
        kind = chance.randrange(6)
        if kind == 0:
            del made[place:]
        elif kind == 1:
            del made[place : place + length]
        elif kind == 2:
            made[place:place] = made[place : place + length]
        elif kind == 3:
            made[place : place + length] = chance.choice((b"\x00", b"\xff", b"9", b"}")) * length
        elif made:
            place = min(place, len(made) - 1)
            made[place] ^= 1 << chance.randrange(8)
    return bytes(made)


class Mutated:
    """Folders of all kinds; `case` damages one and queries it."""

    def __init__(self, folder):
        self.folders = [Folder(kind, folder / kind) for kind in KINDS]

    def case(self, seed, number):
        """A description of the damage, and the query, which may raise only an `InputError`."""
        chance = drawn("folder", seed, number)
        folder = chance.choice(self.folders)
        name = chance.choice(sorted(folder.files))
        words = f"{folder.path.name} {name}"
        if name == "manifest.json" and chance.random() < 0.7:
            path, wrong = chance.choice(list(value_damages(folder.manifest)))
            folder.put(changed(folder.manifest, path, wrong))
            words += f" {path} {wrong!r}"
        else:
            content = mutated(chance, folder.files[name])
            if name == "manifest.json" or chance.random() < 0.3:
                folder.put(folder.manifest)
                (folder.path / "manifest.json").write_bytes(folder.files["manifest.json"])
                (folder.path / name).write_bytes(content)
                folder.other = {name} - {"manifest.json"}
            else:
                folder.put(folder.manifest, **{name: content})
        return words, lambda: self.ask(folder.path)

    def ask(self, path):
        """Whether it answered."""
        try:
            ask(path)
        except InputError as error:
            json.dumps(str(error))
            return False
        return True
