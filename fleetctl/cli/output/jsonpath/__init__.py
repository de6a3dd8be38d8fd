"""kubectl's JSONPath templates: `{range .items[*]}{.metadata.name}{"\\n"}{end}`.

`parse_template` and `parse_path` make nodes of text, `render` and `find` apply them to documents.
No library speaks this dialect (range and end, literals, relaxed paths), so it is written here after
k8s.io/client-go/util/jsonpath. Pure; imports nothing but errors and json.
"""

from fleetctl.cli.output.jsonpath.evaluate import find, render, shown
from fleetctl.cli.output.jsonpath.nodes import Path, Template
from fleetctl.cli.output.jsonpath.parse import parse_path, parse_template

__all__ = ["Path", "Template", "find", "parse_path", "parse_template", "render", "shown"]
