"""Records a run in its sandbox: its journal, its log, its result, its end."""
