"""The words of a status: its keys, and the reasons with a sentence each."""
