"""Changes to stored objects without their files: delete, retry, suspend, set, edit, orphans."""
