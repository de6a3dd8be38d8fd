"""The parts of remote sandboxes: image recipes, builds and volumes."""
