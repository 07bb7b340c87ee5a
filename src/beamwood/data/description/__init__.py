"""What a log is, by the checks and splits that a fit makes too: see `describe_log`."""

from beamwood.data.description.log import describe_log, outline
from beamwood.data.description.words import lines, lines_of_fit, outline_lines

__all__ = ["describe_log", "lines", "lines_of_fit", "outline", "outline_lines"]
