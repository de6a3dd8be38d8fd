"""What remote sandboxes are made from: image recipes, builds and volumes."""
