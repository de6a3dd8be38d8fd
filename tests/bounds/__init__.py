"""The tests of a cloud's SDK against the oldest and the newest version that an extra allows."""
