"""The blocks that several kinds share: template, placement, rules, cache.

Each file has the models of a block of a manifest, which check its values when they are parsed.
WorkSpec (common.py) joins the blocks of BatchJob, Sweep and TrainingRun; Template (template.py) is
the program and the sandbox of a unit, and reaches providers through RunRequest. A WorkPart
(common.py) is the template and placement of some units, where the units of a kind differ.
A block imports values/ and other blocks, never a kind; secrets are in it by name, never by value.
A field without a row in specs/content.py fails tests/unit/specs/test_specs_content.py.
"""
