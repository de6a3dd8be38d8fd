"""kubectl's JSONPath templates: `{range .items[*]}{.metadata.name}{"\n"}{end}`.

`parse_template` and `parse_path` make nodes of text, `render` and `find` apply them to documents.
There is no library for this dialect (range and end, literals, relaxed paths), so it is written here
after k8s.io/client-go/util/jsonpath. Pure; imports only errors and json.
"""

from fleetctl.cli.output.jsonpath.evaluate import (
    VisitLimit,
    find_values,
    format_value,
    render_template,
)
from fleetctl.cli.output.jsonpath.parse import parse_path, parse_template
from fleetctl.cli.output.jsonpath.template_nodes import Path, Template

__all__ = [
    "Path",
    "Template",
    "VisitLimit",
    "find_values",
    "format_value",
    "parse_path",
    "parse_template",
    "render_template",
]
