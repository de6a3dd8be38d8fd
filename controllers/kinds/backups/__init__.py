"""When the state is to be backed up."""
