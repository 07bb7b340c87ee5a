"""The parts of one file each, as users would write them (tests/one_file)."""

from pathlib import Path

PARTS = sorted((Path(__file__).parent / "one_file").glob("*.py"))
METHOD_FILES = [path for path in PARTS if "METHOD = " in path.read_text()]
