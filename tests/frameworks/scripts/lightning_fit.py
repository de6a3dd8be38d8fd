"""`fit(ckpt_path="last")` with a ModelCheckpoint; knows nothing of fleetctl but for a result."""

import json
import os
import sys

import lightning
import torch
from crash import crash
from lightning.pytorch.callbacks import ModelCheckpoint

directory = sys.argv[1]
begun = []


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        begun.append(self.global_step)
        crash(self.global_step, f"{directory}/last.ckpt")
        x, y = batch
        return torch.nn.functional.mse_loss(self.line(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


x = torch.arange(80.0)[:, None] / 10
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x), batch_size=2)
torch.manual_seed(1)
trainer = lightning.Trainer(
    max_steps=20,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    callbacks=[
        ModelCheckpoint(dirpath=directory, every_n_train_steps=5, save_last=True, save_top_k=-1)
    ],
)
trainer.fit(Line(), loader, ckpt_path="last")
with open(os.environ["FLEETCTL_RESULT"], "w") as file:
    json.dump({"resumed_from": begun[0], "steps": trainer.global_step}, file)
