"""Checks result files against bench/schema.json: python3 bench/schema.py [FILE...], all of results/ by default.

The validator knows the part of JSON Schema that schema.json uses and refuses a schema that uses more.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
NOTES = {"$schema", "$id", "$defs", "title", "description"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


class BadRecord(ValueError):
    """What is wrong, where and what was expected."""


def is_type(value: Any, name: str) -> bool:
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


class Validator:
    """validate() raises BadRecord for the first thing that a value has against the schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def validate(self, value: Any, schema: dict[str, Any] | None = None, at: str = "") -> None:
        schema = self.schema if schema is None else schema
        for keyword, wanted in schema.items():
            if keyword in NOTES:
                continue
            check = getattr(self, "check_" + keyword.strip("$"), None)
            if check is None:
                raise ValueError(f"the schema's keyword {keyword!r} is not one that bench/schema.py knows")
            check(value, wanted, schema, at)

    @staticmethod
    def wrong(at: str, expected: str, value: Any) -> BadRecord:
        return BadRecord(f"{at or 'the record'}: expected {expected}, got {json.dumps(value)[:80]}")

    def check_ref(self, value: Any, wanted: str, schema: dict, at: str) -> None:
        target = self.schema
        for part in wanted.removeprefix("#/").split("/"):
            target = target[part]
        self.validate(value, target, at)

    def check_oneOf(self, value: Any, wanted: list, schema: dict, at: str) -> None:
        """Records are told apart by `type`, so that a message speaks of the right kind."""
        kinds = {}
        for option in wanted:
            target = self.schema["$defs"][option["$ref"].rpartition("/")[2]]
            kinds[target["properties"]["type"]["const"]] = target
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in kinds:
            raise self.wrong(f"{at}type", f"one of {', '.join(kinds)}", kind)
        self.validate(value, kinds[kind], at)

    def check_type(self, value: Any, wanted: str | list[str], schema: dict, at: str) -> None:
        names = [wanted] if isinstance(wanted, str) else wanted
        if not any(is_type(value, name) for name in names):
            raise self.wrong(at, " or ".join(names), value)

    def check_const(self, value: Any, wanted: Any, schema: dict, at: str) -> None:
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            raise self.wrong(at, json.dumps(wanted), value)

    def check_enum(self, value: Any, wanted: list, schema: dict, at: str) -> None:
        if value not in wanted:
            raise self.wrong(at, f"one of {', '.join(map(str, wanted))}", value)

    def check_required(self, value: Any, wanted: list[str], schema: dict, at: str) -> None:
        missing = [name for name in wanted if isinstance(value, dict) and name not in value]
        if missing:
            raise BadRecord(f"{at or 'the record'}: expected {', '.join(missing)}, absent")

    def check_properties(self, value: Any, wanted: dict, schema: dict, at: str) -> None:
        if isinstance(value, dict):
            for name, inner in wanted.items():
                if name in value:
                    self.validate(value[name], inner, f"{at}.{name}" if at else name)

    def check_additionalProperties(self, value: Any, wanted: bool, schema: dict, at: str) -> None:
        extra = set(value) - set(schema["properties"]) if isinstance(value, dict) and wanted is False else ()
        if extra:
            raise BadRecord(f"{at or 'the record'}: no such field: {', '.join(sorted(extra))}")

    def check_items(self, value: Any, wanted: dict, schema: dict, at: str) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                self.validate(item, wanted, f"{at}[{index}]")

    def check_minItems(self, value: Any, wanted: int, schema: dict, at: str) -> None:
        if isinstance(value, list) and len(value) < wanted:
            raise self.wrong(at, f"at least {wanted} items", value)

    def check_minimum(self, value: Any, wanted: float, schema: dict, at: str) -> None:
        if is_type(value, "number") and not value >= wanted:
            raise self.wrong(at, f"at least {wanted}", value)

    def check_maximum(self, value: Any, wanted: float, schema: dict, at: str) -> None:
        if is_type(value, "number") and not value <= wanted:
            raise self.wrong(at, f"at most {wanted}", value)

    def check_exclusiveMinimum(self, value: Any, wanted: float, schema: dict, at: str) -> None:
        if is_type(value, "number") and not value > wanted:
            raise self.wrong(at, f"more than {wanted}", value)

    def check_pattern(self, value: Any, wanted: str, schema: dict, at: str) -> None:
        if isinstance(value, str) and not re.search(wanted, value):
            raise self.wrong(at, f"text like {wanted}", value)


def validator() -> Validator:
    return Validator(json.loads((ROOT / "bench/schema.json").read_text()))


def check_lines(lines: list[str], file: str, checker: Validator | None = None) -> int:
    """Every record of a file, and what a schema cannot say: order of the percentiles, environments before their cells.
    Returns the number of records; raises BadRecord with file and line."""
    checker = checker or validator()
    known: set[str] = set()
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(f"{name} is not JSON")))
            checker.validate(record)
            if record["type"] == "environment":
                known.add(record["id"])
            elif "environment" in record and record["environment"] not in known:
                raise BadRecord(f"environment: expected the id of a record before it, got {record['environment']!r}")
            if record["type"] in ("cell", "conv") and not record["p10_us"] <= record["median_us"] <= record["p90_us"]:
                raise BadRecord("p10_us, median_us, p90_us: expected them in order")
        except ValueError as error:
            raise BadRecord(f"{file}:{number}: {error}") from None
    return number


def main(paths: list[str]) -> int:
    files = [Path(path) for path in paths] or sorted(RESULTS.rglob("*.jsonl"))
    checker, records, bad = validator(), 0, 0
    for file in files:
        try:
            records += check_lines(file.read_text().splitlines(), str(file), checker)
        except BadRecord as error:
            print(error, file=sys.stderr)
            bad += 1
    print(f"{len(files)} files, {records} records" + (f", {bad} files are wrong" if bad else " as bench/schema.json says"))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
