"""The plan format: written for people and records, read back without loss.

Costs are divided by the plan's scale again, so a file in decimal cores gets its answer in decimal cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from reprise.algorithms.errors import PlanFormatError
from reprise.algorithms.model import Choice, Exclusion, Plan


def plan_to_json(plan: Plan) -> dict[str, object]:
    """Plain dicts, lists, strings and numbers; `json.dumps` takes it as it is."""
    return {
        "algorithm": plan.algorithm,
        "why": plan.why,
        "value": plan.value,
        "cost": _real(plan.cost, plan.scale),
        "queries": list(plan.queries),
        "partitions": list(plan.partitions),
        **({} if plan.placement is None else {"placement": dict(sorted(plan.placement.items()))}),
        "bound": plan.bound,
        "optimal": plan.optimal,
        "packing_loss": plan.packing_loss,
        "seconds": plan.seconds,
        "scale": plan.scale,
        "chosen": [_choice_to_json(choice, plan.scale) for choice in plan.chosen],
        "excluded": [_exclusion_to_json(exclusion, plan.scale) for exclusion in plan.excluded],
    }


def plan_from_json(obj: object) -> Plan:
    """The inverse of `plan_to_json`; of the record of a plan, too, which leaves out what it says elsewhere.
    Raises PlanFormatError(field, reason)."""
    top = _Reader(obj, "$")
    scale = top.integer("scale", 1)
    placement = top.raw("placement", None)
    return Plan(
        algorithm=top.text("algorithm"),
        value=top.integer("value"),
        cost=top.scaled("cost", scale),
        queries=top.texts("queries"),
        partitions=top.texts("partitions", ()),
        placement=None if placement is None else _Reader(placement, "placement").text_map(),
        bound=top.integer("bound"),
        optimal=top.flag("optimal"),
        seconds=top.real("seconds"),
        excluded=tuple(_exclusion(reader, scale) for reader in top.objects("excluded")),
        chosen=tuple(_choice(reader, scale) for reader in top.objects("chosen")),
        why=top.text("why", ""),
        packing_loss=top.integer("packing_loss", 0),
        scale=scale,
    )


def _choice_to_json(choice: Choice, scale: int) -> dict[str, object]:
    return {
        "query": choice.query,
        "priority": choice.priority,
        "cost": _real(choice.cost, scale),
        "cost_alone": _real(choice.cost_alone, scale),
        "restores": list(choice.restores),
    }


def _exclusion_to_json(exclusion: Exclusion, scale: int) -> dict[str, object]:
    return {
        "query": exclusion.query,
        "reason": exclusion.reason,
        "code": exclusion.code,
        "missing": list(exclusion.missing),
        "missing_capacity": _real(exclusion.missing_capacity, scale),
        "competes_with": list(exclusion.competes_with),
        "enters_at": _real(exclusion.enters_at, scale),
        "entry_exact": exclusion.entry_exact,
    }


def _choice(reader: _Reader, scale: int) -> Choice:
    return Choice(
        reader.text("query"),
        reader.integer("priority"),
        reader.scaled("cost", scale),
        reader.scaled("cost_alone", scale),
        reader.texts("restores"),
    )


def _exclusion(reader: _Reader, scale: int) -> Exclusion:
    return Exclusion(
        query=reader.text("query"),
        reason=reader.text("reason"),
        missing=reader.texts("missing"),
        missing_capacity=reader.scaled("missing_capacity", scale),
        competes_with=reader.texts("competes_with"),
        enters_at=reader.scaled("enters_at", scale),
        entry_exact=reader.flag("entry_exact"),
        code=reader.text("code"),
    )


def _real(number: int, scale: int) -> int | float:
    """Give number / scale as JSON has it; the float's shortest decimal is the exact quotient (scale is a power of
    ten and sums are at most 2**50, that is 16 digits)."""
    return number // scale if number % scale == 0 else float(Decimal(number) / scale)


class _Reader:
    """An object of the format with checked access; every failure names the path."""

    def __init__(self, obj: object, where: str) -> None:
        if not isinstance(obj, Mapping):
            raise PlanFormatError(where, "must be an object")
        self._obj = obj
        self._where = where

    def raw(self, name: str, *default: object) -> object:
        if name in self._obj:
            value: object = self._obj[name]
            return value
        if default:
            return default[0]
        raise PlanFormatError(f"{self._where}.{name}", "is missing")

    def text(self, name: str, *default: str) -> str:
        value = self.raw(name, *default)
        if not isinstance(value, str):
            raise PlanFormatError(f"{self._where}.{name}", "must be a string")
        return value

    def integer(self, name: str, *default: int) -> int:
        value = self.raw(name, *default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise PlanFormatError(f"{self._where}.{name}", "must be a whole number")
        return value

    def flag(self, name: str) -> bool:
        value = self.raw(name)
        if not isinstance(value, bool):
            raise PlanFormatError(f"{self._where}.{name}", "must be true or false")
        return value

    def real(self, name: str) -> float:
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise PlanFormatError(f"{self._where}.{name}", "must be a number")
        return float(value)

    def scaled(self, name: str, scale: int) -> int:
        try:
            number = Decimal(repr(self.real(name))) * scale
            if number == number.to_integral_value():
                return int(number)
        except (InvalidOperation, OverflowError):
            pass
        raise PlanFormatError(f"{self._where}.{name}", f"is not a multiple of 1/{scale}")

    def texts(self, name: str, *default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.raw(name, *map(list, default))
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise PlanFormatError(f"{self._where}.{name}", "must be a list of strings")
        return tuple(value)

    def text_map(self) -> dict[str, str]:
        return {str(name): self.text(str(name)) for name in self._obj}

    def objects(self, name: str) -> list[_Reader]:
        value = self.raw(name)
        if not isinstance(value, list):
            raise PlanFormatError(f"{self._where}.{name}", "must be a list")
        return [_Reader(entry, f"{self._where}.{name}[{i}]") for i, entry in enumerate(value)]
