"""A saved folder: `manifest.json`, arrays as safetensors, tables as Parquet, texts; never pickle."""

from beamwood.artefact.manifest import FORMAT, FORMAT_VERSION, read_manifest
from beamwood.artefact.read import Artefact, read_artefact
from beamwood.artefact.write import check_output, write_artefact

__all__ = ["FORMAT", "FORMAT_VERSION", "Artefact", "check_output", "read_artefact", "read_manifest", "write_artefact"]
