"""Groups of options shared by several subcommands: a parameter of a group's type is expanded into its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, get_type_hints

__all__ = ["expanded"]


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a dataclass of options replaced by its fields, for typer."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for name, parameter in _annotated(command).items():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter)
            continue
        fields = _annotated(group)  # type: ignore[arg-type]
        parameters += fields.values()
        groups[name] = group, list(fields)  # type: ignore[assignment]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, (group, fields) in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _annotated(called: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters by name, as keywords, with evaluated annotations."""
    hints = get_type_hints(called, include_extras=True)
    return {
        name: parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(called).parameters.items()
    }
