"""Factories of torch modules that tests name in jobs, good ones and bad ones."""

from typing import Any

import numpy as np
import pandas as pd


def linear(inputs: int, outputs: int) -> Any:
    from torch import nn

    return nn.Linear(inputs, outputs)


def batch_norm(inputs: int, outputs: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.BatchNorm1d(inputs), nn.Linear(inputs, outputs))


def signal(inputs: int, outputs: int) -> Any:
    """A convolution with BatchNorm over positions, and a hidden layer with BatchNorm over units."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, inputs)), nn.Conv1d(1, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(),
        nn.Flatten(), nn.Linear(8 * inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs),
    )  # fmt: skip


def recurrent(inputs: int, outputs: int) -> Any:
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.last = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, outputs)

        def forward(self, x: Any) -> Any:
            return self.last(self.lstm(x[:, :, None])[0][:, -1])

    return Recurrent()


def levels(inputs: int, outputs: int) -> Any:
    """An embedding of the first column, in 20 intervals."""
    import torch

    class Levels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = torch.nn.Embedding(20, 3), torch.nn.Linear(inputs + 2, outputs)

        def forward(self, x: Any) -> Any:
            level = ((x[:, 0] + 1) * 10).long().clamp(0, 19)
            return self.last(torch.cat([self.table(level), x[:, 1:]], dim=1))

    return Levels()


def batch_mean(inputs: int, outputs: int) -> Any:
    """A module without buffers that reads other records, too."""
    import torch

    class Centred(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x - x.mean(dim=0))

    return Centred(inputs, outputs)


def dropout(inputs: int, outputs: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Dropout(0.01), nn.Linear(inputs, outputs))


def frozen(inputs: int, outputs: int) -> Any:
    """A module whose first layer is random and stays as it is."""
    from torch import nn

    module = nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, outputs))
    module[0].requires_grad_(False)
    return module


def all_frozen(inputs: int, outputs: int) -> Any:
    return linear(inputs, outputs).requires_grad_(False)


def lazy(inputs: int, outputs: int) -> Any:
    from torch import nn

    return nn.LazyLinear(outputs)


def wrong_shape(inputs: int, outputs: int) -> Any:
    from torch import nn

    return nn.Linear(inputs, outputs + 1)


def no_parameters(inputs: int, outputs: int) -> Any:
    from torch import nn

    return nn.Flatten()


def not_a_module(inputs: int, outputs: int) -> Any:
    return 3


def failing(inputs: int, outputs: int) -> Any:
    raise RuntimeError("out of neurons")


def root(inputs: int, outputs: int) -> Any:
    """A module whose outputs overflow where the first input is near -1."""
    import torch

    class Root(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(inputs, outputs)

        def forward(self, x: Any) -> Any:
            return self.layer(x) + torch.exp(-100 * x[:, :1]) ** 8

    return Root()


def plateau(inputs: int, outputs: int) -> Any:
    """A module that is constant, 2, where a parameter is above 0.2: the first step leads there."""
    import torch

    class Plateau(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.level = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: Any) -> Any:
            near = torch.exp(-((10 * self.level) ** 8))
            return (self.level * near + 2 * (1 - near)).expand(len(x), 1)

    return Plateau()


def closure(inputs: int, outputs: int) -> Any:
    """A module that cannot be pickled."""
    from torch import nn

    module = nn.Linear(inputs, outputs)
    module.remember = lambda x: x
    return module


COLUMNS: dict[str, dict[str, Any]] = {
    "x": {"type": "continuous", "low": -4, "high": 4},
    "w": {"type": "continuous", "low": 0, "high": 10},
    "y": {"type": "continuous", "low": -8, "high": 8},
    "case": {"type": "binary"},
    "kind": {"type": "categorical", "levels": ["a", "b", "c"]},
}


def tables(sites: int = 3, rows: int = 60, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return tables in which x and w drive y, case and kind."""
    rng = np.random.default_rng([11, seed])
    found = {}
    for i in range(sites):
        x, w = rng.normal(size=rows), rng.uniform(1, 9, rows)
        y = np.clip(np.sin(2 * x) + 0.3 * w + rng.normal(scale=0.3, size=rows), -8, 8)
        case = (rng.random(rows) < 1 / (1 + np.exp(-x))).astype(int)
        kind = np.array(["a", "b", "c"])[np.clip((x + rng.normal(size=rows) + 1).astype(int), 0, 2)]
        found[f"site{i}"] = pd.DataFrame({"x": x, "w": w, "y": y, "case": case, "kind": kind})
    return found


def job(method: dict[str, Any], protocol: str = "plain", **changes: Any) -> dict[str, Any]:
    """Return a job over `tables`."""
    return {
        "title": "networks",
        "sites": {"max_rows": 200},
        "columns": COLUMNS,
        "method": method,
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 1, "min_cell_records": 1, "min_level_sites": 1},
    } | changes
