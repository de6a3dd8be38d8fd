"""Programs that know wandb alone: their parameters, and what they log."""
