"""The six transforms in torch as they are commonly written: a loop over the samples of the batch.

Every random number is read with ``.item()``, which on a GPU waits for the device each time.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import POLICY, Arrays, Signal

R = Signal()


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """The policy, on the CPU and on a GPU if there is one."""
    torch.set_num_threads(num_threads())
    x = torch.from_numpy(arrays["signal"])
    tasks: dict[str, Task] = {POLICY: partial(augment, x)}
    if torch.cuda.is_available():
        tasks[f"{POLICY}, on the GPU"] = partial(_finished, x.cuda())
    return tasks


def _finished(x: Tensor) -> None:
    augment(x)
    torch.cuda.synchronize()


def augment(x: Tensor) -> Tensor:
    """[B, C, T], sample by sample."""
    return torch.stack([_sample(sample) for sample in x])


def _sample(x: Tensor) -> Tensor:
    length, device = x.shape[-1], x.device
    if _lucky(R.shift_p, device):
        most = round(R.shift * length)
        x = torch.roll(x, _whole(-most, most, device), -1)
    if _lucky(R.rate_p, device):
        x = _played(x, _between(R.rate, device))
    if _lucky(R.factor_p, device):
        x = x * _between(R.factor, device)
    if _lucky(R.snr_p, device):
        sigma = x.square().mean().sqrt() * 10 ** (-_between(R.snr_db, device) / 20)
        x = x + sigma * torch.randn_like(x)
    if _lucky(R.mask_p, device):
        x = x.clone()
        for _ in range(R.num_masks):
            width = _whole(0, R.mask_length, device)
            start = _whole(0, length - width, device)
            x[:, start : start + width] = 0
    if _lucky(R.band_p, device):
        spectrum = torch.fft.rfft(x)
        width = round(_between((0, R.band), device) * spectrum.shape[-1])
        start = _whole(0, spectrum.shape[-1] - width, device)
        spectrum[:, start : start + width] = 0
        x = torch.fft.irfft(spectrum, length)
    return x


def _played(x: Tensor, rate: float) -> Tensor:
    """Faster or slower by linear interpolation; cut, or with zeros around it."""
    length = x.shape[-1]
    played = F.interpolate(x[None], size=round(length / rate), mode="linear", align_corners=False)[0]
    spare = played.shape[-1] - length
    if spare >= 0:
        return played[:, spare // 2 : spare // 2 + length]
    return F.pad(played, (-spare // 2, -spare - (-spare // 2)))


def _lucky(p: float, device: torch.device) -> bool:
    return torch.rand(1, device=device).item() < p


def _between(ends: tuple[float, float], device: torch.device) -> float:
    return torch.empty(1, device=device).uniform_(*ends).item()


def _whole(low: int, high: int, device: torch.device) -> int:
    return int(torch.randint(low, high + 1, (1,), device=device).item())


if __name__ == "__main__":
    serve("torch", prepare)
