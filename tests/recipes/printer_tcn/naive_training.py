"""Trains a small TCN on simulated layers as people first write it: the data set calls a scaler.

python naive_training.py "data_simulation_*"
"""

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = (
    *("x_ref", "y_ref", "z_ref", "vx_ref", "vy_ref", "vz_ref", "T_nozzle", "T_interface"),
    *("F_inertia_x", "F_inertia_y", "cooling_rate", "layer_num"),
)
TARGETS = ("adhesion_ratio", "internal_stress", "porosity", "dimensional_accuracy", "quality_score")
SEQ_LEN, PRED_LEN, STRIDE = 200, 50, 5


class PrinterSimulationDataset(Dataset[dict[str, Any]]):
    def __init__(self, paths: list[Path]) -> None:
        self.sequences: list[dict[str, Any]] = []
        rows = []
        for data_idx, path in enumerate(paths):
            with h5py.File(path) as file:
                wanted = (*FEATURES, *TARGETS, "error_x", "error_y")
                data = {name: file["simulation_data"][name][0] for name in wanted}
            features = np.stack([data[name] for name in FEATURES], 1)
            targets = np.stack([data[name] for name in TARGETS], 1)
            rows.append(features)
            for i in range(0, len(features) - SEQ_LEN - PRED_LEN, STRIDE):
                last = i + SEQ_LEN + PRED_LEN - 1
                future = slice(i + SEQ_LEN, last + 1)
                self.sequences.append(
                    {
                        "input_features": features[i : i + SEQ_LEN],
                        "targets": targets[last],
                        "error_x": data["error_x"][future],
                        "error_y": data["error_y"][future],
                        "data_idx": data_idx,
                        "start_idx": i,
                    }
                )
        self.scaler = StandardScaler().fit(np.concatenate(rows))
        self.target_std = np.concatenate([s["targets"][None] for s in self.sequences]).std(0) + 1e-6

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        seq = self.sequences[idx]
        input_features = self.scaler.transform(seq["input_features"])
        return {
            "input_features": torch.FloatTensor(input_features),
            "targets": torch.FloatTensor(seq["targets"] / self.target_std),
            "error_x": torch.FloatTensor(seq["error_x"]),
            "error_y": torch.FloatTensor(seq["error_y"]),
            "data_idx": seq["data_idx"],
            "start_idx": seq["start_idx"],
        }


class CausalConv(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, dilation: int, stride: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(channels_in, channels_out, 3, dilation=dilation, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(self.pad(x)))


class TCN(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        # strides keep it small enough for a processor to stand in for a GPU
        self.blocks = nn.Sequential(
            CausalConv(12, channels, 1, 4),
            CausalConv(channels, channels, 2, 2),
            CausalConv(channels, channels, 4, 1),
        )
        self.head = nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.blocks(x.transpose(1, 2)).mean(2))


def main() -> None:
    train_set = PrinterSimulationDataset(sorted(Path().glob(f"{sys.argv[1]}/*.mat")))
    train_loader = DataLoader(train_set, batch_size=128, shuffle=True)
    model = TCN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    for epoch in range(10):
        for batch in train_loader:
            loss = nn.functional.mse_loss(model(batch["input_features"]), batch["targets"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
