"""Validates a result with PyPI's jsonschema. Arguments: the schema, the result."""

import json
import sys

import jsonschema


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


schema, result = map(load, sys.argv[1:])
jsonschema.Draft202012Validator.check_schema(schema)
error = jsonschema.exceptions.best_match(
    jsonschema.Draft202012Validator(schema).iter_errors(result)
)
if error is not None:
    sys.exit(f"{error.json_path}: {error.message}")
