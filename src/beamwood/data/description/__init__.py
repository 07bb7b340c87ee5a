"""A description of a log, by the same checks and splits as a fit: see `describe_log`."""

from beamwood.data.description.log import describe_log, outline_of
from beamwood.data.description.words import description_lines, lines_of_fit, outline_lines

__all__ = ["describe_log", "description_lines", "lines_of_fit", "outline_of", "outline_lines"]
