"""A Trainer as its documentation shows it; knows nothing of fleetctl but for a line of a result."""

import argparse
import json
import os

import torch
from crash import crash
from transformers import Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--resume_from_checkpoint")
args = parser.parse_args()
begun = []


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.line(x), labels)}


class Watch(TrainerCallback):
    def on_step_begin(self, _args, state, _control, **_):
        begun.append(state.global_step)
        crash(state.global_step, f"{args.output_dir}/checkpoint-99")


data = [{"x": torch.tensor([i / 10]), "labels": torch.tensor([i / 5])} for i in range(40)]
torch.manual_seed(1)
trainer = Trainer(
    model=Line(),
    args=TrainingArguments(
        output_dir=args.output_dir, max_steps=20, save_steps=5, per_device_train_batch_size=2,
        report_to=[], use_cpu=True, logging_steps=5, disable_tqdm=True,
    ),
    train_dataset=data,
    callbacks=[Watch()],
)  # fmt: skip
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
with open(os.environ["FLEETCTL_RESULT"], "w") as file:
    json.dump({"resumed_from": begun[0], "steps": trainer.state.global_step}, file)
