"""The read model: objects, tasks and goals as every screen shows them. Needs no controller."""
